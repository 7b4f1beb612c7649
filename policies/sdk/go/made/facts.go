//go:build !wasm

package made

import (
	"fmt"

	"allot"
	"allot/facts"
	types "allot/wit/rollout_allocation_facts"
)

// Facts are what facts answers where a policy runs natively:
//
//	made.Facts{Prompts: 3, Past: map[uint32]allot.Past{1: made.Past(4, 8).Some()}}.Tell()
type Facts struct {
	// Prompts in the data set.
	Prompts uint32
	// The last visits of those that have one.
	Past map[allot.PromptId]allot.Past
	// Columns by name, the same number of numbers for each prompt.
	Columns map[string][]float32
	// What a token takes.
	TokenCosts facts.TokenCosts
}

// Tell makes them the answers from now on.
func (f Facts) Tell() { facts.Told = f }

// Counts answers for facts.Counts.
func (f Facts) Counts(what facts.Count, of facts.Prompts) []uint32 {
	return each(f, of, func(past allot.Past) uint32 {
		return [...]uint32{past.Visits, past.Step, past.Rollouts, past.Correct, past.Streak,
			past.TotalRollouts, past.TotalCorrect}[what]
	})
}

// Measures answers for facts.Measures.
func (f Facts) Measures(what facts.Measure, of facts.Prompts) []float32 {
	return each(f, of, func(past allot.Past) float32 {
		return [...]float32{past.Mean, past.Std, past.MeanLength}[what]
	})
}

// Column answers for facts.Column.
func (f Facts) Column(name string, of facts.Prompts) []float32 {
	column, known := f.Columns[name]
	if !known {
		panic(fmt.Sprintf("asked for the column %q, which the made facts don't have", name))
	}
	width := uint32(len(column)) / max(f.Prompts, 1)
	numbers := []float32{}
	for _, id := range f.asked(of) {
		numbers = append(numbers, column[id*width:(id+1)*width]...)
	}
	return numbers
}

// Costs answers for facts.Costs.
func (f Facts) Costs() facts.TokenCosts { return f.TokenCosts }

// A number for each prompt asked about: of a past of zeros where there is none.
func each[T any](f Facts, of facts.Prompts, number func(allot.Past) T) []T {
	numbers := []T{}
	for _, id := range f.asked(of) {
		numbers = append(numbers, number(f.Past[id]))
	}
	return numbers
}

func (f Facts) asked(of facts.Prompts) []uint32 {
	first, end := uint32(0), f.Prompts
	asked := []uint32{}
	switch of.Tag() {
	case types.PromptsListed:
		asked, end = of.Listed(), 0
	case types.PromptsBetween:
		first, end = of.Between().F0, of.Between().F1
	}
	for id := first; id < end; id++ {
		asked = append(asked, id)
	}
	for _, id := range asked {
		if id >= f.Prompts {
			panic(fmt.Sprintf("asked about prompt %d, where the made facts have %d prompts", id, f.Prompts))
		}
	}
	return asked
}
