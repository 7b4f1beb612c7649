package allot

import (
	exports "allot/wit/export_rollout_allocation_allocator"
	log "allot/wit/rollout_allocation_log"
	types "allot/wit/rollout_allocation_types"
	wit "allot/wit/types"
	_ "allot/wit/wit_exports"
)

// Where the package is compiled for Wasm.

func write(level Level, line string) { log.Write(log.Level(level), line) }

// Export makes a policy the component's. Call it in `init`. It does nothing where the package is
// compiled for the machine at hand.
func Export[Settings, State any](policy Policy[Settings, State]) {
	exports.Describe = func() Description { return Describe(policy) }
	exports.Begin = func(run Run) wit.Result[[]uint8, types.Error] {
		return result(Begin(policy, &run))
	}
	exports.Decide = func(run Run, state []uint8, view View) wit.Result[Plan, types.Error] {
		return result(Decide(policy, &run, state, &view))
	}
}

func result[T any](value T, err error) wit.Result[T, types.Error] {
	if err != nil {
		return wit.Err[T](contract(err))
	}
	return wit.Ok[T, types.Error](value)
}
