package allot

import (
	"errors"

	types "allot/wit/rollout_allocation_types"
)

// An error that the contract has a kind for.
type refusal struct {
	kind types.Error
	text string
}

func (r refusal) Error() string { return r.text }

// BadSetting is the error for a setting that a policy can't work with.
func BadSetting(name, reason string) error {
	kind := types.MakeErrorSetting(types.BadSetting{Name: name, Reason: reason})
	return refusal{kind, "setting `" + name + "`: " + reason}
}

// BadState is the error for a state that this version of the policy has not written.
func BadState(reason string) error { return refusal{types.MakeErrorState(reason), "state: " + reason} }

// The contract's form of any error.
func contract(err error) types.Error {
	var known refusal
	if errors.As(err, &known) {
		return known.kind
	}
	return types.MakeErrorOther(err.Error())
}
