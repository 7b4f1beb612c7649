// Package export_rollout_allocation_allocator is where the generated exports look for a policy's
// three functions. allot.Export puts them there.
package export_rollout_allocation_allocator

import (
	"allot/wit/rollout_allocation_types"
	"allot/wit/types"
)

// The policy, once it is exported.
var (
	Describe = func() rollout_allocation_types.Description {
		panic("there is no policy: call allot.Export(policy) in init")
	}
	Begin  func(rollout_allocation_types.Run) types.Result[[]uint8, rollout_allocation_types.Error]
	Decide func(rollout_allocation_types.Run, []uint8, rollout_allocation_types.View) types.Result[rollout_allocation_types.Plan, rollout_allocation_types.Error]
)
