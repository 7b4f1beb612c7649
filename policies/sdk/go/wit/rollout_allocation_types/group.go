package rollout_allocation_types

import "math"

// What policies ask of groups, past visits, views and budgets.

// Len gives the buffered rollouts.
func (g *Group) Len() int { return len(g.Rewards) }

// Solved says how many rollouts are correct.
func (g *Group) Solved() int {
	solved := 0
	for _, correct := range g.Correct {
		if correct {
			solved++
		}
	}
	return solved
}

// PassRate gives the share of correct rollouts.
func (g *Group) PassRate() float64 { return float64(g.Solved()) / float64(g.Len()) }

// Flat says whether all rewards are one and the same: nothing to learn here. max == min, never
// std > 0, whose rounding error keeps groups of a constant such as 0.1.
func (g *Group) Flat() bool {
	for _, reward := range g.Rewards {
		if reward != g.Rewards[0] {
			return false
		}
	}
	return true
}

// Mean gives the mean reward.
func (g *Group) Mean() float64 {
	sum := 0.0
	for _, reward := range g.Rewards {
		sum += float64(reward)
	}
	return sum / float64(g.Len())
}

// Age gives the age of the oldest rollout, in model updates.
func (g *Group) Age() uint32 {
	oldest := uint32(0)
	for _, age := range g.Ages {
		oldest = max(oldest, age)
	}
	return oldest
}

// Deviation is the standard deviation of the rewards as contract 0.1 had it: of the population, divided by n.
func (p *Past) Deviation() float32 {
	n := float64(max(p.Rollouts, 1))
	return float32(float64(p.Std) * math.Sqrt((n-1)/n))
}

// Group gives the buffered rollouts of a prompt, or nil. It looks through all groups.
func (v *View) Group(prompt PromptId) *Group {
	for i := range v.Groups {
		if v.Groups[i].Prompt == prompt {
			return &v.Groups[i]
		}
	}
	return nil
}

// Offer gives the first n prompts of the pool, or all that are there.
func (v *View) Offer(n uint32) []Prompt { return v.Pool[:min(uint64(n), uint64(len(v.Pool)))] }

// CanSample says whether there are prompts on offer and a budget to sample them with.
func (v *View) CanSample() bool { return v.Budget.Open() && len(v.Pool) > 0 }

// Open says whether the host would serve another round of sampling.
func (b *Budget) Open() bool {
	return b.Rounds > 0 && b.StepRollouts > 0 && b.RunRollouts > 0 && b.RunTokens > 0
}
