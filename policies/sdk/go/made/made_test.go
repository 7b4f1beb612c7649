package made_test

import (
	"math"
	"reflect"
	"testing"

	"allot"
	"allot/facts"
	"allot/made"
)

func TestFactsAreThoseThatWereMade(t *testing.T) {
	made.Facts{
		Prompts:    4,
		Past:       map[allot.PromptId]allot.Past{1: made.Past(2, 4).Some(), 3: made.Past(4, 4).Some()},
		Columns:    map[string][]float32{"place": {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5}},
		TokenCosts: facts.TokenCosts{Reading: 1, Generating: 2, Learning: 3},
	}.Tell()
	expect(t, facts.Counts(facts.Correct, facts.All()), []uint32{0, 2, 0, 4})
	expect(t, facts.Counts(facts.Streak, facts.Between(1, 4)), []uint32{0, 0, 1})
	expect(t, facts.Measures(facts.MeanLength, facts.Listed(3, 0, 3)), []float32{10, 0, 10})
	expect(t, facts.Column("place", facts.Listed(3, 1)), []float32{3, 3.5, 1, 1.5})
	expect(t, facts.Costs().Learning, 3.0)
}

// Of 1, 1, 0 and 0: the sample's, and the population's.
func TestDeviationsAreOfTheSample(t *testing.T) {
	past := made.Past(2, 4).Some()
	if math.Abs(float64(past.Std)-math.Sqrt(1.0/3)) > 1e-6 || math.Abs(float64(past.Deviation())-0.5) > 1e-6 {
		t.Fatal(past.Std, past.Deviation())
	}
}

func TestWhatOnlySomeNeedIsPutTogether(t *testing.T) {
	request := allot.Request{Prompt: 3, Count: 8, Until: allot.Until(1, 0, 4), Sampling: allot.Sampled(0.5, 64, 2)}
	plan := allot.Sample(request).Deferring(5)
	expect(t, plan.Action.Sample()[0].Until.Some().Portion, uint32(4))
	expect(t, plan.Action.Sample()[0].Sampling.Some(), allot.Sampling{Temperature: 0.5, MaxTokens: 64, MaxTurns: 2})
	expect(t, plan.Action.Sample()[0].Starts == nil, true)
	expect(t, plan.Defer, []uint32{5})

	pick := allot.PickAll(4)
	pick.Advantage = allot.Among(0, 2)
	batch := allot.Train(pick).Holding(7).HoldingSome(4, 0, 2).Updating(16, 2).Action.Train()
	expect(t, batch.Picks[0].Advantage.Among(), []uint32{0, 2})
	expect(t, batch.Hold[0].Rollouts.IsSome(), false)
	expect(t, batch.Hold[1].Rollouts.Some(), []uint32{0, 2})
	expect(t, batch.Update.Some(), allot.Update{MiniBatch: 16, Passes: 2})

	policy := allot.Policy[allot.None, allot.None]{Columns: []string{"level"}, Needs: allot.NeedReplay | allot.NeedStopping}
	said := allot.Describe(policy)
	expect(t, said.Needs, allot.NeedReplay|allot.NeedStopping)
	expect(t, made.Run(policy, nil).Columns, []allot.Column{{Name: "level", Width: 1}})
}

func TestEpisodesHaveTurns(t *testing.T) {
	group := made.Episodes(7, []float32{1, 0, 1}, []uint32{2, 0, 1})
	expect(t, group.Turns, [][]allot.Turn{{{Read: 0, Tokens: 5}, {Read: 3, Tokens: 5}}, {}, {{Read: 0, Tokens: 5}}})
	expect(t, group.Lengths, []uint32{10, 0, 5})
	expect(t, group.Stopped, []allot.Stopped{allot.StoppedDone, allot.StoppedDone, allot.StoppedDone})
	expect(t, len(group.Origins), 3)
	expect(t, group.Origins[0].IsSome(), false)
	expect(t, group.Solved(), 2)

	answers := made.Group(7, 1, 0)
	expect(t, len(answers.Turns)+len(answers.Stopped)+len(answers.Origins), 0)
}

func TestPlansForEpisodesArePutTogether(t *testing.T) {
	request := allot.Sample(allot.Starting(3, allot.After(5, 2), allot.FromPrompt())).Action.Sample()[0]
	expect(t, request.Count, uint32(2))
	expect(t, request.Starts[0].Some(), allot.Start{Rollout: 5, Turn: 2})
	expect(t, request.Starts[1].IsSome(), false)

	pick := allot.PickAll(7)
	pick.Advantage = allot.ByTurn([]float32{0.5, -1}, nil, []float32{2})
	expect(t, pick.Advantage.ByTurn(), [][]float32{{0.5, -1}, nil, {2}})

	policy := allot.Policy[allot.None, allot.None]{Needs: allot.NeedTurns | allot.NeedStarting}
	expect(t, allot.Describe(policy).Needs, allot.NeedTurns|allot.NeedStarting)
	expect(t, made.Run(policy, nil).Sampling.Default.MaxTurns, uint32(8))
	expect(t, made.Run(allot.Policy[allot.None, allot.None]{}, nil).Sampling.Default.MaxTurns, uint32(1))
}

func expect(t *testing.T, is, be any) {
	t.Helper()
	if !reflect.DeepEqual(is, be) {
		t.Fatalf("%+v is not %+v", is, be)
	}
}
