// What each language's grader does here: all that a verdict can be, and a fault.
package main

import (
	"errors"
	"slices"

	"allot/grader"
)

type settings struct {
	Word      string  `default:"pass" summary:"The answer that can't be judged."`
	PerLetter float64 `default:"0.125" summary:"What each letter is worth."`
	Open      bool    `default:"true" summary:"Whether anything is."`
	Longest   int32   `default:"100" summary:"The longest answer."`
}

var yardstick = grader.Grader[settings]{
	Name:    "yardstick",
	Version: "0.1.0",
	Summary: "all that a verdict can be",
	Parts:   []string{"answer", "length"},
	Begin:   begin,
	Grade:   grade,
}

func begin(set *settings) error {
	if set.PerLetter < 0 {
		return grader.BadSetting("per-letter", "a letter costs nothing")
	}
	if !set.Open {
		return errors.New("it is closed")
	}
	return nil
}

func grade(set *settings, question *grader.Question) grader.Verdict {
	answer := question.Answer
	right := slices.Contains(question.Gold, answer)
	switch answer {
	case "!":
		panic("no answer begins so")
	case "=":
		return grader.Correct(right)
	case "+":
		return grader.Reward(0.75, right)
	case "?":
		return grader.Undecided(grader.Reward(0.25, false))
	case set.Word:
		return grader.Unscorable(question.Source + " to " + question.Prompt)
	}
	worth := grader.Part{Name: "answer"}
	if right {
		worth.Value = 1
	}
	return grader.InParts(right, grader.Part{Name: "length", Value: float32(float64(len(answer)) * set.PerLetter)}, worth)
}

func init() { grader.Export(yardstick) }

func main() {}
