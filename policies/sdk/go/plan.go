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

// AgainstGroup is the Advantage of a pick measured against all of the prompt's buffered rollouts.
func AgainstGroup() Advantage { return types.MakeAdvantageGroup() }

// Among is the Advantage of a pick measured against the rollouts at these positions, picked or not.
func Among(positions ...uint32) Advantage { return types.MakeAdvantageAmong(positions) }

// Given is the Advantage of a pick with the policy's own, one for each rollout picked.
func Given(advantages ...float32) Advantage { return types.MakeAdvantageGiven(advantages) }

// ByTurn is the Advantage of a pick with the policy's own by turn: for each rollout picked, one for each of its turns.
// The policy has NeedTurns.
func ByTurn(advantages ...[]float32) Advantage { return types.MakeAdvantageByTurn(advantages) }

// Starting asks for one more rollout for each of these: it continues a buffered rollout of the prompt, or begins with
// the prompt. The policy has NeedStarting.
//
//	allot.Starting(3, allot.After(0, 1), allot.After(0, 2), allot.FromPrompt())
func Starting(prompt PromptId, starts ...wit.Option[Start]) Request {
	return Request{Prompt: prompt, Count: uint32(len(starts)), Starts: starts}
}

// After continues the rollout at a position in the prompt's group after one of its turns, from 0.
func After(rollout, turn uint32) wit.Option[Start] {
	return wit.Some(Start{Rollout: rollout, Turn: turn})
}

// FromPrompt continues no rollout.
func FromPrompt() wit.Option[Start] { return wit.None[Start]() }

// Until ends a request early, after the portion by which so many of its rollouts are correct and so many wrong. The
// policy has NeedStopping.
//
//	allot.Request{Prompt: 3, Count: 8, Until: allot.Until(1, 0, 4)}
func Until(correct, wrong, portion uint32) wit.Option[Enough] {
	return wit.Some(Enough{Correct: correct, Wrong: wrong, Portion: portion})
}

// Sampled samples a request in another way, within the run's range: what is to stay as it is comes from the run's
// default. The policy has NeedSampling.
//
//	usual := run.Sampling.Default
//	allot.Request{Prompt: 3, Count: 8, Sampling: allot.Sampled(0.6, usual.MaxTokens, usual.MaxTurns)}
func Sampled(temperature float32, maxTokens, maxTurns uint32) wit.Option[Sampling] {
	return wit.Some(Sampling{Temperature: temperature, MaxTokens: maxTokens, MaxTurns: maxTurns})
}

// OrElse is a count that a run may leave to something else by setting it to 0.
func OrElse(count, otherwise uint32) uint32 {
	if count == 0 {
		return otherwise
	}
	return count
}
