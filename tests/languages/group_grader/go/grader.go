// What each language's grader of groups does here: it compares answers, and a fault.
package main

import (
	"slices"

	"allot/grader"
)

type settings struct {
	Best float64 `default:"1" summary:"What the shortest right answer is worth."`
}

var podium = grader.Grader[settings]{
	Name:       "podium",
	Version:    "0.1.0",
	Summary:    "the shortest right answers of a group",
	GradeGroup: grade,
}

func grade(set *settings, questions []grader.Question) []grader.Verdict {
	least := -1
	for i := range questions {
		answer := questions[i].Answer
		if answer == "!" {
			panic("no answer begins so")
		}
		if isRight(&questions[i]) && (least < 0 || len(answer) < least) {
			least = len(answer)
		}
	}
	if len(questions) == 1 {
		return []grader.Verdict{grader.Unscorable("it is alone")}
	}
	var verdicts []grader.Verdict
	for i := range questions {
		right, reward := isRight(&questions[i]), float32(0)
		if right && len(questions[i].Answer) == least {
			reward = float32(set.Best)
		}
		verdicts = append(verdicts, grader.Reward(reward, right))
	}
	return verdicts
}

func isRight(question *grader.Question) bool { return slices.Contains(question.Gold, question.Answer) }

func init() { grader.Export(podium) }

func main() {}
