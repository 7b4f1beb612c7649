package main

import (
	"reflect"
	"testing"

	"allot"
	"allot/made"
)

func plan(t *testing.T, run *allot.Run, view *allot.View) allot.Plan {
	t.Helper()
	plan, err := allot.Decide(policy, run, nil, view)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func expect(t *testing.T, is, be allot.Plan) {
	t.Helper()
	if !reflect.DeepEqual(is, be) {
		t.Fatalf("%+v is not %+v", is, be)
	}
}

func TestSamplesOnceThenTrainsOnAll(t *testing.T) {
	run, view := made.Run(policy, nil), made.View(10)
	expect(t, plan(t, run, view), allot.Sample(
		allot.Request{Prompt: 0, Count: 8}, allot.Request{Prompt: 1, Count: 8},
		allot.Request{Prompt: 2, Count: 8}, allot.Request{Prompt: 3, Count: 8}))

	view.Round = 1
	view.Groups = []allot.Group{made.Group(3, 1, 0), made.Group(5, 0, 0)}
	expect(t, plan(t, run, view), allot.Train(allot.PickAll(3), allot.PickAll(5)))
}

func TestASettingOverridesTheRun(t *testing.T) {
	run := made.Run(policy, map[string]allot.Value{"rollouts": allot.Integer(3)})
	expect(t, plan(t, run, made.View(1)), allot.Sample(allot.Request{Prompt: 0, Count: 3}))
}

func TestTrainsWhereNothingCanBeSampled(t *testing.T) {
	run, view := made.Run(policy, nil), made.View(4)
	view.Budget.Rounds = 0
	expect(t, plan(t, run, view), allot.Train([]allot.Pick{}...))
	expect(t, plan(t, run, made.View(0)), allot.Train([]allot.Pick{}...))
}

func TestRefusesOneRolloutOfAPrompt(t *testing.T) {
	for _, of := range []struct {
		own     int32
		run     uint32
		refused bool
	}{{1, 8, true}, {0, 1, true}, {0, 2, false}, {2, 1, false}} {
		run := made.Run(policy, map[string]allot.Value{"rollouts": allot.Integer(of.own)})
		run.Rollouts = of.run
		if _, err := allot.Begin(policy, run); (err != nil) != of.refused {
			t.Fatal(of, err)
		}
	}
}

func TestRefusesABadSetting(t *testing.T) {
	run := made.Run(policy, map[string]allot.Value{"rollouts": allot.Integer(-12)})
	_, err := allot.Begin(policy, run)
	if err == nil || err.Error() != "setting `rollouts`: -12 is not a whole number, 0 or more" {
		t.Fatal(err)
	}
}
