package facts

import facts "allot/wit/rollout_allocation_facts"

// Where the package is compiled for Wasm.

// Counts gives counts of past visits: 0 for a prompt without any.
func Counts(what Count, of Prompts) []uint32 { return facts.Counts(what, of) }

// Measures gives means of the last visit: 0 for a prompt without any.
func Measures(what Measure, of Prompts) []float32 { return facts.Measures(what, of) }

// Column gives a column that the policy describes, as many numbers for each prompt as the run says.
func Column(name string, of Prompts) []float32 { return facts.Column(name, of) }

// Costs says what a token takes.
func Costs() TokenCosts { return facts.Costs() }
