// Package made makes views, groups, pasts and facts, for the tests of policies.
package made

import (
	"fmt"
	"math"

	"allot"
	"allot/wit/types"
)

// Run is a run with the policy's default settings, some of them replaced by name, and its columns with one number for
// each prompt. Its rollouts are episodes if the policy needs that.
func Run[Settings, State any](policy allot.Policy[Settings, State], changes map[string]allot.Value) *allot.Run {
	run := allot.Run{Prompts: 1000, Steps: 100, Groups: 4, Rollouts: 8, Pool: 64, MaxAge: 8}
	turns := uint32(1)
	if policy.Needs&(allot.NeedTurns|allot.NeedStarting) != 0 {
		turns = 8
	}
	run.Sampling.Default = allot.Sampling{Temperature: 1, MaxTokens: 1024, MaxTurns: turns}
	run.Sampling.Least = allot.Sampling{Temperature: 0, MaxTokens: 1, MaxTurns: 1}
	run.Sampling.Most = allot.Sampling{Temperature: 2, MaxTokens: 1024, MaxTurns: turns}
	run.Update = allot.Update{MiniBatch: math.MaxUint32, Passes: 4}
	for _, name := range policy.Columns {
		run.Columns = append(run.Columns, allot.Column{Name: name, Width: 1})
	}
	known := 0
	for _, setting := range allot.Describe(policy).Settings {
		value, changed := changes[setting.Name]
		if changed {
			known++
		} else {
			value = setting.Default
		}
		run.Settings = append(run.Settings, types.Tuple2[string, allot.Value]{F0: setting.Name, F1: value})
	}
	if known < len(changes) {
		panic(fmt.Sprintf("%q does not have all the settings of %v", policy.Name, changes))
	}
	return &run
}

// View opens the first step: prompts 0..n on offer, nothing buffered, no limit.
func View(n uint32) *allot.View {
	view := allot.View{Seed: 1, Budget: allot.Budget{
		Rounds:       math.MaxUint32,
		StepRollouts: math.MaxUint32,
		RunRollouts:  math.MaxUint32,
		RunTokens:    math.MaxUint64,
		RunFlops:     math.MaxFloat64,
	}}
	for id := range n {
		view.Pool = append(view.Pool, Prompt(id))
	}
	return &view
}

// Prompt was never visited before, and is of the first epoch.
func Prompt(id allot.PromptId) allot.Prompt { return allot.Prompt{Id: id, Length: 10} }

// Group is fresh, and its rewards are its marks: 1 for a correct rollout, 0 for another. What only policies that need it
// are shown is empty: Signals, Parts, Trained and Sampling; Turns, Stopped and Origins, which Episodes fills.
func Group(prompt allot.PromptId, marks ...float32) allot.Group {
	group := allot.Group{Prompt: prompt, Rewards: marks}
	for _, mark := range marks {
		group.Correct = append(group.Correct, mark >= 1)
		group.Lengths = append(group.Lengths, 10)
		group.Ages = append(group.Ages, 0)
		group.Truncated = append(group.Truncated, false)
	}
	return group
}

// Episodes are a fresh group, as Group makes it, each with so many turns. A turn is of 5 tokens, and between two of them
// are 3 of the environment, which ended them all. All began with the prompt.
func Episodes(prompt allot.PromptId, marks []float32, turns []uint32) allot.Group {
	if len(marks) != len(turns) {
		panic(fmt.Sprintf("%d numbers of turns for %d rollouts", len(turns), len(marks)))
	}
	group := Group(prompt, marks...)
	for i, n := range turns {
		own := []allot.Turn{}
		for k := range n {
			own = append(own, allot.Turn{Read: 3 * min(k, 1), Tokens: 5})
		}
		group.Lengths[i] = 5 * n
		group.Turns = append(group.Turns, own)
		group.Stopped = append(group.Stopped, allot.StoppedDone)
		group.Origins = append(group.Origins, types.None[allot.Origin]())
	}
	return group
}

// Past is the only visit of a prompt: so many of `rollouts` correct, rewards as Group makes them.
func Past(correct, rollouts uint32) types.Option[allot.Past] {
	n := float64(rollouts)
	p := float64(correct) / n
	past := allot.Past{
		Visits:        1,
		Rollouts:      rollouts,
		Correct:       correct,
		Mean:          float32(p),
		Std:           float32(math.Sqrt(p * (1 - p) * n / max(n-1, 1))),
		MeanLength:    10,
		TotalRollouts: rollouts,
		TotalCorrect:  correct,
	}
	if correct == 0 || correct == rollouts {
		past.Streak = 1
	}
	return types.Some(past)
}
