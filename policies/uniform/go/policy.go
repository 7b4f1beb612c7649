// Uniform allocation, as in GRPO (arXiv 2402.03300): the same number of rollouts for every prompt,
// and training on all of them. The twin of ../src/lib.rs.
package main

import (
	"strconv"

	"allot"
)

type settings struct {
	Rollouts uint32 `default:"0" summary:"Rollouts of each prompt; 0 for the run's own number."`
}

var policy = allot.Policy[settings, allot.None]{
	Name:    "uniform",
	Version: "0.1.0",
	Summary: "the same number of rollouts for every prompt, and training on all of them",
	Begin:   begin,
	Decide:  decide,
}

func begin(set settings, run *allot.Run) (allot.None, error) {
	const why = ", and an advantage is measured against the prompt's other rollouts, so nothing can be learned; set "
	switch {
	case allot.OrElse(set.Rollouts, run.Rollouts) > 1:
		return allot.None{}, nil
	case set.Rollouts == 1:
		return allot.None{}, allot.BadSetting("rollouts", "it is 1"+why+"2 or more")
	}
	number := strconv.Itoa(int(run.Rollouts))
	return allot.None{}, allot.BadSetting("rollouts",
		"it leaves the number to `run.rollouts`, which is "+number+why+"either to 2 or more")
}

func decide(set settings, run *allot.Run, _ *allot.None, view *allot.View) (allot.Plan, error) {
	if view.Round > 0 || !view.CanSample() {
		picks := make([]allot.Pick, 0, len(view.Groups))
		for i := range view.Groups {
			picks = append(picks, allot.PickAll(view.Groups[i].Prompt))
		}
		return allot.Train(picks...), nil
	}
	rollouts := allot.OrElse(set.Rollouts, run.Rollouts)
	var requests []allot.Request
	for _, prompt := range view.Offer(run.Groups) {
		requests = append(requests, allot.Request{Prompt: prompt.Id, Count: rollouts})
	}
	return allot.Sample(requests...), nil
}

func init() { allot.Export(policy) }

func main() {}
