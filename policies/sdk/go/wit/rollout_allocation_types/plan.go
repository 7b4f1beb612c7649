package rollout_allocation_types

import "allot/wit/types"

// Plans, put together a line at a time.

// Holding keeps the rollouts of these prompts buffered for the next step, all that the plan does not pick. Only a plan
// that trains discards any.
func (p Plan) Holding(prompts ...PromptId) Plan {
	return p.train("Holding", func(batch *Batch) {
		for _, prompt := range prompts {
			batch.Hold = append(batch.Hold, Hold{Prompt: prompt})
		}
	})
}

// HoldingSome keeps some rollouts of a prompt buffered, by their positions in its group; for a policy with NeedReplay
// also those that the plan picks.
func (p Plan) HoldingSome(prompt PromptId, positions ...uint32) Plan {
	return p.train("HoldingSome", func(batch *Batch) {
		batch.Hold = append(batch.Hold, Hold{Prompt: prompt, Rollouts: types.Some(positions)})
	})
}

// Updating updates the model in optimizer steps of so many rollouts, in so many passes. The policy has NeedUpdating.
func (p Plan) Updating(miniBatch, passes uint32) Plan {
	return p.train("Updating", func(batch *Batch) {
		batch.Update = types.Some(Update{MiniBatch: miniBatch, Passes: passes})
	})
}

func (p Plan) train(what string, change func(batch *Batch)) Plan {
	if p.Action.Tag() != ActionTrain {
		panic(what + " on a plan that samples; only one that trains has a batch")
	}
	batch := p.Action.Train()
	change(&batch)
	p.Action = MakeActionTrain(batch)
	return p
}

// Deferring puts these prompts of the pool back: they come on offer again in this epoch, after all others of it.
func (p Plan) Deferring(prompts ...PromptId) Plan {
	p.Defer = append(p.Defer, prompts...)
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
