// Package facts says what the host knows of the data set's prompts, on offer or not: a list with an entry for each
// prompt asked about.
//
//	visits := facts.Counts(facts.Visits, facts.All())
//	levels := facts.Column("level", facts.Between(10, 20))
//	means := facts.Measures(facts.Mean, facts.Listed(7, 3))
//
// To be asked within Decide. A policy that asks about a prompt that the data set does not have, or for a column that it
// does not describe, ends the run. Natively the answers are those of made.Facts.
package facts

import (
	facts "allot/wit/rollout_allocation_facts"
	wit "allot/wit/types"
)

// The contract's types.
type (
	Count      = facts.Count
	Measure    = facts.Measure
	Prompts    = facts.Prompts
	TokenCosts = facts.TokenCosts
)

// Counts of past visits, as in allot.Past.
const (
	Visits        Count = facts.CountVisits
	Step          Count = facts.CountStep
	Rollouts      Count = facts.CountRollouts
	Correct       Count = facts.CountCorrect
	Streak        Count = facts.CountStreak
	TotalRollouts Count = facts.CountTotalRollouts
	TotalCorrect  Count = facts.CountTotalCorrect
)

// Means of the last visit, as in allot.Past.
const (
	Mean       Measure = facts.MeasureMean
	Std        Measure = facts.MeasureStd
	MeanLength Measure = facts.MeasureMeanLength
)

// All prompts, in the order of the data set.
func All() Prompts { return facts.MakePromptsAll() }

// Between gives the prompts from the first up to the end, without it.
func Between(first, end uint32) Prompts {
	return facts.MakePromptsBetween(wit.Tuple2[uint32, uint32]{F0: first, F1: end})
}

// Listed gives these prompts, in this order.
func Listed(prompts ...uint32) Prompts { return facts.MakePromptsListed(prompts) }
