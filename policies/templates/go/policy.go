// Tries each prompt with a few rollouts, and spends the rest where the answers vary.
//
// Change `decide` to your own rule. A policy is a pure function: all it knows is in its arguments.
package main

import "allot"

// What a run may set: the names are `pilot` and `commit`.
type settings struct {
	Pilot  uint32 `default:"4" summary:"Rollouts to try each prompt with."`
	Commit uint32 `default:"12" summary:"Rollouts to add where the first ones vary."`
}

var policy = allot.Policy[settings, allot.None]{
	Name:    "{{name}}",
	Version: "0.1.0",
	Summary: "tries each prompt, and commits where answers vary",
	Begin:   begin,
	Decide:  decide,
}

func begin(set settings, _ *allot.Run) (allot.None, error) {
	if set.Pilot < 2 {
		return allot.None{}, allot.BadSetting("pilot", "it takes at least 2 rollouts to see whether answers vary")
	}
	return allot.None{}, nil
}

func decide(set settings, run *allot.Run, _ *allot.None, view *allot.View) (allot.Plan, error) {
	var requests []allot.Request
	if view.Budget.Open() && view.Round == 0 {
		for _, prompt := range view.Offer(2 * run.Groups) {
			requests = append(requests, allot.Request{Prompt: prompt.Id, Count: set.Pilot})
		}
	}
	if view.Budget.Open() && view.Round == 1 {
		for i := range view.Groups {
			group := &view.Groups[i]
			if group.Flat() || len(requests) == int(run.Groups) {
				continue
			}
			requests = append(requests, allot.Request{Prompt: group.Prompt, Count: max(set.Commit, 1)})
		}
	}
	if len(requests) > 0 {
		return allot.Sample(requests...), nil
	}

	var picks []allot.Pick
	for i := range view.Groups {
		if group := &view.Groups[i]; !group.Flat() {
			picks = append(picks, allot.PickAll(group.Prompt))
		}
	}
	return allot.Train(picks...), nil
}

func init() { allot.Export(policy) }

func main() {}
