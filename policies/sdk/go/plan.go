package allot

import (
	types "allot/wit/rollout_allocation_types"
	wit "allot/wit/types"
)

// Sample is a plan to sample these, then ask again.
func Sample(requests ...Request) Plan { return Plan{Action: types.MakeActionSample(requests)} }

// Train is a plan to train on these, and end the step.
func Train(picks ...Pick) Plan { return Plan{Action: types.MakeActionTrain(Batch{Picks: picks})} }

// PickAll picks all rollouts of a prompt, measured against each other.
func PickAll(prompt PromptId) Pick {
	return Pick{Prompt: prompt, Advantage: types.MakeAdvantagePicked(), Weight: 1}
}

// PickSome picks some rollouts of a prompt, by their positions in its group, measured against each
// other.
func PickSome(prompt PromptId, positions ...uint32) Pick {
	pick := PickAll(prompt)
	pick.Rollouts = wit.Some(positions)
	return pick
}

// AgainstGroup is the Advantage of a pick measured against all of the prompt's rollouts on hand.
func AgainstGroup() Advantage { return types.MakeAdvantageGroup() }

// Given is the Advantage of a pick with the policy's own, one for each rollout picked.
func Given(advantages ...float32) Advantage { return types.MakeAdvantageGiven(advantages) }

// OrElse is a count that a run may leave to something else by setting it to 0.
func OrElse(count, otherwise uint32) uint32 {
	if count == 0 {
		return otherwise
	}
	return count
}
