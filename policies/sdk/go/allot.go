// Package allot is what a Go author needs to write an allocation policy.
//
// A policy is a name, some settings, perhaps some state, and one decision:
//
//	package main
//
//	import "allot"
//
//	type settings struct {
//		Rollouts uint32 `default:"8" summary:"Rollouts of each prompt."`
//	}
//
//	var policy = allot.Policy[settings, allot.None]{
//		Name:    "even",
//		Version: "0.1.0",
//		Summary: "the same number of rollouts for every prompt",
//		Decide:  decide,
//	}
//
//	func decide(set settings, run *allot.Run, _ *allot.None, view *allot.View) (allot.Plan, error) {
//		...
//	}
//
//	func init() { allot.Export(policy) }
//
//	func main() {}
//
// Compiled for the machine at hand this is a plain function that tests call by way of Describe,
// Begin and Decide; compiled for Wasm it is a component of the contract
// rollout:allocation@0.3.0. What each field of its types means is told where they are generated, in
// wit/rollout_allocation_types.
package allot

import types "allot/wit/rollout_allocation_types"

// The contract's types.
type (
	Action      = types.Action
	Advantage   = types.Advantage
	Batch       = types.Batch
	Budget      = types.Budget
	Column      = types.Column
	Description = types.Description
	Enough      = types.Enough
	Group       = types.Group
	Hold        = types.Hold
	Needs       = types.Needs
	Origin      = types.Origin
	Past        = types.Past
	Pick        = types.Pick
	Plan        = types.Plan
	Prompt      = types.Prompt
	PromptId    = types.PromptId
	Request     = types.Request
	Run         = types.Run
	Sampling    = types.Sampling
	Setting     = types.Setting
	Start       = types.Start
	Stopped     = types.Stopped
	Tally       = types.Tally
	Turn        = types.Turn
	Update      = types.Update
	Value       = types.Value
	View        = types.View
)

// What not every run can give.
const (
	NeedAnyPrompt Needs = types.NeedsAnyPrompt
	NeedReplay    Needs = types.NeedsReplay
	NeedSampling  Needs = types.NeedsSampling
	NeedStopping  Needs = types.NeedsStopping
	NeedUpdating  Needs = types.NeedsUpdating
	NeedParts     Needs = types.NeedsParts
	NeedTurns     Needs = types.NeedsTurns
	NeedStarting  Needs = types.NeedsStarting
)

// Why an episode ended.
const (
	StoppedDone          Stopped = types.StoppedDone
	StoppedMaxTurns      Stopped = types.StoppedMaxTurns
	StoppedMaxTokens     Stopped = types.StoppedMaxTokens
	StoppedMaxReadTokens Stopped = types.StoppedMaxReadTokens
	StoppedMaxToolCalls  Stopped = types.StoppedMaxToolCalls
	StoppedMaxSeconds    Stopped = types.StoppedMaxSeconds
)

// None is the settings or the state of a policy that has none.
type None = struct{}

// Policy is one decision, and what it needs to be told apart from others.
//
// A policy is a pure function: Decide may rest on its arguments alone. Chance comes from the
// view's seed (see NewChance), memory from the state.
type Policy[Settings, State any] struct {
	// Short and lower-case, as in a config: pilot-commit.
	Name string
	// The policy's own version: 1.2.0.
	Version string
	// One line for people.
	Summary string
	// Signals to show beside each rollout, by name.
	Signals []string
	// Columns of the data set to ask facts for, by name.
	Columns []string
	// What else the policy makes use of: allot.NeedReplay | allot.NeedStopping.
	Needs Needs

	// Begin checks settings against each other and the run, and gives the first state. A setting's
	// own type is checked before this is called. Nil for a first state of zeros.
	Begin func(set Settings, run *Run) (State, error)

	// Decide says what to do next. What is left in the state comes back at the next call; the plan's
	// own State is filled from it and need not be set.
	Decide func(set Settings, run *Run, state *State, view *View) (Plan, error)
}

// Describe is the contract's describe of a policy.
func Describe[Settings, State any](policy Policy[Settings, State]) Description {
	return Description{
		Name:     policy.Name,
		Version:  policy.Version,
		Summary:  policy.Summary,
		Settings: describe[Settings](),
		Signals:  policy.Signals,
		Columns:  policy.Columns,
		Needs:    policy.Needs,
	}
}

// Begin is the contract's begin of a policy.
func Begin[Settings, State any](policy Policy[Settings, State], run *Run) ([]byte, error) {
	set, err := read[Settings](run)
	if err != nil {
		return nil, err
	}
	var state State
	if policy.Begin != nil {
		if state, err = policy.Begin(set, run); err != nil {
			return nil, err
		}
	}
	return save(&state), nil
}

// Decide is the contract's decide of a policy.
func Decide[Settings, State any](policy Policy[Settings, State], run *Run, bytes []byte, view *View) (Plan, error) {
	set, err := read[Settings](run)
	if err != nil {
		return Plan{}, err
	}
	var state State
	if err = load(&state, bytes); err != nil {
		return Plan{}, err
	}
	plan, err := policy.Decide(set, run, &state, view)
	if err != nil {
		return Plan{}, err
	}
	plan.State = save(&state)
	return plan, nil
}
