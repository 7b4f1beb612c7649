// A policy that makes use of all that there is. The twin of ../../whole.rs.
package main

import (
	"allot"
	"allot/facts"
)

type settings struct {
	Beyond string `default:"" summary:"What to use that is not described: nothing, until, sampling or update."`
}

var policy = allot.Policy[settings, allot.None]{
	Name:    "whole",
	Version: "0.1.0",
	Summary: "makes use of all that there is",
	Needs:   allot.NeedAnyPrompt,
	Decide:  decide,
}

func decide(set settings, run *allot.Run, _ *allot.None, view *allot.View) (allot.Plan, error) {
	plan := learn(set.Beyond, view)
	if view.Round == 0 && view.CanSample() {
		plan = ask(set.Beyond, run, view)
	}
	var listed []uint32
	for _, prompt := range view.Offer(3) {
		listed = append(listed, prompt.Id)
	}
	var unscored, lengths, epochs, past float64
	for _, lost := range view.Unscored {
		unscored += float64(lost.Rollouts)
	}
	for i := range view.Groups {
		lengths += sum(view.Groups[i].Lengths)
		epochs += float64(view.Groups[i].Epoch)
	}
	for _, prompt := range view.Pool {
		if visit, visited := prompt.Past.Get(); visited {
			past += float64(visit.Std)
		}
	}
	return plan.
		Metric("correct", sum(facts.Counts(facts.TotalCorrect, facts.Between(2, 9)))).
		Metric("std", sum(facts.Measures(facts.Std, facts.Listed(listed...)))).
		Metric("mean-length", sum(facts.Measures(facts.MeanLength, facts.Between(0, 4)))).
		Metric("learning", facts.Costs().Learning).
		Metric("unscored", unscored).
		Metric("lengths", lengths).
		Metric("epochs", epochs).
		Metric("past", past).
		Metric("flops", view.Budget.RunFlops).
		Metric("temperature", float64(run.Sampling.Most.Temperature)).
		Metric("passes", float64(run.Update.Passes)), nil
}

func ask(beyond string, run *allot.Run, view *allot.View) allot.Plan {
	rarest := uint32(0)
	visits := facts.Counts(facts.Visits, facts.All())
	for id, n := range visits {
		if n < visits[rarest] {
			rarest = uint32(id)
		}
	}
	request := allot.Request{Prompt: rarest, Count: 3}
	switch beyond {
	case "until":
		request.Until = allot.Until(1, 0, 2)
	case "sampling":
		request.Sampling = allot.Sampled(0.5, run.Sampling.Default.MaxTokens, run.Sampling.Default.MaxTurns)
	}
	plan := allot.Sample(request)
	for _, prompt := range view.Pool {
		if prompt.Id != rarest && len(plan.Defer) < 2 {
			plan = plan.Deferring(prompt.Id)
		}
	}
	return plan
}

func learn(beyond string, view *allot.View) allot.Plan {
	var picks []allot.Pick
	for i := range view.Groups {
		pick := allot.PickSome(view.Groups[i].Prompt, 0)
		pick.Advantage = allot.Among(uint32(view.Groups[i].Len() - 1))
		picks = append(picks, pick)
	}
	plan := allot.Train(picks...)
	for i := range view.Groups {
		if view.Groups[i].Len() > 1 {
			plan = plan.HoldingSome(view.Groups[i].Prompt, 1)
		}
	}
	if beyond == "update" {
		plan = plan.Updating(16, 1)
	}
	return plan
}

func sum[T uint32 | float32](numbers []T) float64 {
	total := 0.0
	for _, number := range numbers {
		total += float64(number)
	}
	return total
}

func init() { allot.Export(policy) }

func main() {}
