// Uniform allocation, as in GRPO (arXiv 2402.03300): the same number of rollouts for every prompt,
// and training on all of them. The twin of ../src/lib.rs.
package main

import "allot"

type settings struct {
	Rollouts uint32 `default:"0" summary:"Rollouts of each prompt; 0 for the run's own number."`
}

var policy = allot.Policy[settings, allot.None]{
	Name:    "uniform",
	Version: "0.1.0",
	Summary: "the same number of rollouts for every prompt, and training on all of them",
	Decide:  decide,
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
