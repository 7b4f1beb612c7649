package rollout_allocation_types

import "allot/wit/types"

// Plans, put together a line at a time.

// Holding keeps the rollouts of these prompts on hand for the next step. Only a plan that trains
// lets go of any.
func (p Plan) Holding(prompts ...PromptId) Plan {
	if p.Action.Tag() != ActionTrain {
		panic("Holding on a plan that samples; such a plan lets nothing go")
	}
	batch := p.Action.Train()
	batch.Hold = append(batch.Hold, prompts...)
	p.Action = MakeActionTrain(batch)
	return p
}

// Skipping passes over these prompts of the pool until the next epoch.
func (p Plan) Skipping(prompts ...PromptId) Plan {
	p.Skip = append(p.Skip, prompts...)
	return p
}

// Evicting never offers these prompts again in this run.
func (p Plan) Evicting(prompts ...PromptId) Plan {
	p.Evict = append(p.Evict, prompts...)
	return p
}

// Metric logs a number beside the run's own.
func (p Plan) Metric(name string, value float64) Plan {
	p.Metrics = append(p.Metrics, types.Tuple2[string, float64]{F0: name, F1: value})
	return p
}
