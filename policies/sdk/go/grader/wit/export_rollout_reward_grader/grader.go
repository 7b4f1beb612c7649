// Package export_rollout_reward_grader is where the generated exports look for a grader's three functions.
// grader.Export puts them there.
package export_rollout_reward_grader

import (
	"allot/grader/wit/rollout_reward_types"
	"allot/wit/types"
)

// The grader, once it is exported.
var (
	Describe = func() rollout_reward_types.Description {
		panic("there is no grader: call grader.Export(grader) in init")
	}
	Begin func([]types.Tuple2[string, rollout_reward_types.Value]) types.Result[types.Unit, rollout_reward_types.Error]
	Grade func([]rollout_reward_types.Question) []rollout_reward_types.Verdict
)
