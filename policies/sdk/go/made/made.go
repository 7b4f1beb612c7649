// Package made makes views, groups and pasts, for the tests of policies.
package made

import (
	"fmt"
	"math"

	"allot"
	"allot/wit/types"
)

// Run is a run with the policy's default settings, some of them replaced by name.
func Run[Settings, State any](policy allot.Policy[Settings, State], changes map[string]allot.Value) *allot.Run {
	run := allot.Run{Prompts: 1000, Steps: 100, Groups: 4, Rollouts: 8, Pool: 64, MaxAge: 8}
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

// View opens the first step: prompts 0..n on offer, nothing on hand, no limit.
func View(n uint32) *allot.View {
	view := allot.View{Seed: 1, Budget: allot.Budget{
		Rounds:       math.MaxUint32,
		StepRollouts: math.MaxUint32,
		RunRollouts:  math.MaxUint32,
		RunTokens:    math.MaxUint64,
	}}
	for id := range n {
		view.Pool = append(view.Pool, Prompt(id))
	}
	return &view
}

// Prompt was never visited before, and is of the first epoch.
func Prompt(id allot.PromptId) allot.Prompt { return allot.Prompt{Id: id, Tokens: 10} }

// Group is fresh, and its rewards are its marks: 1 for a correct rollout, 0 for another.
func Group(prompt allot.PromptId, marks ...float32) allot.Group {
	group := allot.Group{Prompt: prompt, Rewards: marks}
	for _, mark := range marks {
		group.Correct = append(group.Correct, mark >= 1)
		group.Tokens = append(group.Tokens, 10)
		group.Ages = append(group.Ages, 0)
		group.Truncated = append(group.Truncated, false)
	}
	return group
}

// Past is the only visit of a prompt: so many of `rollouts` correct, rewards as Group makes them.
func Past(correct, rollouts uint32) types.Option[allot.Past] {
	p := float32(correct) / float32(rollouts)
	past := allot.Past{
		Visits:        1,
		Rollouts:      rollouts,
		Correct:       correct,
		Mean:          p,
		Deviation:     float32(math.Sqrt(float64(p * (1 - p)))),
		Tokens:        10,
		TotalRollouts: rollouts,
		TotalCorrect:  correct,
	}
	if correct == 0 || correct == rollouts {
		past.Streak = 1
	}
	return types.Some(past)
}
