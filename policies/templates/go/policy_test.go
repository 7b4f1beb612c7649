package main

import (
	"reflect"
	"testing"

	"allot"
	"allot/made"
)

func TestCommitsOnlyWhereThePilotsVary(t *testing.T) {
	view := made.View(0)
	view.Round = 1
	view.Groups = []allot.Group{made.Group(1, 1, 0, 1, 1), made.Group(2, 0, 0, 0, 0)}

	plan, err := allot.Decide(policy, made.Run(policy, nil), nil, view)
	if err != nil || !reflect.DeepEqual(plan, allot.Sample(allot.Request{Prompt: 1, Count: 12})) {
		t.Fatal(plan, err)
	}
}
