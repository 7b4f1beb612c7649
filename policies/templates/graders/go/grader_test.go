package main

import (
	"reflect"
	"testing"

	"allot/grader"
)

func judge(t *testing.T, answer string, changes map[string]any) grader.Verdict {
	question := grader.Question{Gold: []string{"Paris"}, Answer: answer}
	verdict, err := grader.Judge(mine, &question, changes)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

func TestWhiteSpaceAroundMakesNoDifference(t *testing.T) {
	if verdict := judge(t, " Paris\n", nil); !reflect.DeepEqual(verdict, grader.Correct(true)) {
		t.Fatal(verdict)
	}
	if verdict := judge(t, "paris", nil); !reflect.DeepEqual(verdict, grader.Correct(false)) {
		t.Fatal(verdict)
	}
}

func TestCapitalsMakeNoneWhereARunSaysSo(t *testing.T) {
	verdict := judge(t, "PARIS", map[string]any{"caseless": true})
	if !reflect.DeepEqual(verdict, grader.Correct(true)) {
		t.Fatal(verdict)
	}
}
