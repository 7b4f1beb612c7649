package grader

import (
	types "allot/grader/wit/rollout_reward_types"
	wit "allot/wit/types"
)

// Correct is the run's reward of a right answer, or of a wrong one.
func Correct(correct bool) Verdict { return judged(correct, types.MakeRewardByCorrectness()) }

// Reward is this much, and whether the answer is right.
func Reward(reward float32, correct bool) Verdict {
	return judged(correct, types.MakeRewardNumber(reward))
}

// InParts is a reward in parts, all of those that the grader has, and whether the answer is right.
func InParts(correct bool, parts ...Part) Verdict {
	return judged(correct, types.MakeRewardParts(parts))
}

// Undecided is the same reward, and it is for the run to say from which reward on an answer is right.
func Undecided(verdict Verdict) Verdict {
	if verdict.Tag() != types.VerdictJudged {
		return verdict
	}
	judgement := verdict.Judged()
	judgement.Correct = wit.None[bool]()
	return types.MakeVerdictJudged(judgement)
}

// Unscorable is no verdict, and why not, in one line.
func Unscorable(reason string) Verdict { return types.MakeVerdictUnscorable(reason) }

func judged(correct bool, reward types.Reward) Verdict {
	return types.MakeVerdictJudged(types.Judgement{Correct: wit.Some(correct), Reward: reward})
}
