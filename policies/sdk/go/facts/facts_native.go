//go:build !wasm

package facts

// Where the package is compiled for the machine at hand.

// Answers are what a test makes, by made.Facts.
type Answers interface {
	Counts(what Count, of Prompts) []uint32
	Measures(what Measure, of Prompts) []float32
	Column(name string, of Prompts) []float32
	Costs() TokenCosts
}

// Told answers all questions.
var Told Answers

// Counts gives counts of past visits: 0 for a prompt without any.
func Counts(what Count, of Prompts) []uint32 { return told().Counts(what, of) }

// Measures gives means of the last visit: 0 for a prompt without any.
func Measures(what Measure, of Prompts) []float32 { return told().Measures(what, of) }

// Column gives a column that the policy describes, as many numbers for each prompt as the run says.
func Column(name string, of Prompts) []float32 { return told().Column(name, of) }

// Costs says what a token takes.
func Costs() TokenCosts { return told().Costs() }

func told() Answers {
	if Told == nil {
		panic("a policy asked for facts: a test tells them by made.Facts{…}.Tell()")
	}
	return Told
}
