// An answer is right if it is a gold answer.
//
// Change `grade` to your own rule. A grader is a pure function: a verdict rests on the settings and the question alone.
package main

import (
	"strings"

	"allot/grader"
)

// What a run may set: the name is `caseless`.
type settings struct {
	Caseless bool `default:"false" summary:"Whether capital letters are the same as small ones."`
}

var mine = grader.Grader[settings]{
	Name:    "{{name}}",
	Version: "0.1.0",
	Summary: "right is what is a gold answer",
	Grade:   grade,
}

func grade(set *settings, question *grader.Question) grader.Verdict {
	if len(question.Gold) == 0 {
		return grader.Unscorable("there is no gold answer")
	}
	answer := plain(set, question.Answer)
	for _, gold := range question.Gold {
		if plain(set, gold) == answer {
			return grader.Correct(true)
		}
	}
	return grader.Correct(false)
}

// A text without what makes no difference.
func plain(set *settings, text string) string {
	text = strings.TrimSpace(text)
	if set.Caseless {
		return strings.ToLower(text)
	}
	return text
}

func init() { grader.Export(mine) }

func main() {}
