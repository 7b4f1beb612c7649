package allot

import (
	"reflect"
	"strings"
	"testing"
)

type memory struct {
	Keep    float64
	Waiting []uint32
	Nested  []struct{ Done bool }
}

func TestStateComesBack(t *testing.T) {
	was := memory{0.5, []uint32{7, 9}, []struct{ Done bool }{{true}}}
	var is memory
	if err := load(&is, save(&was)); err != nil || !reflect.DeepEqual(is, was) {
		t.Fatal(is, err)
	}
	for n := range save(&was) {
		if load(&is, save(&was)[:n]) == nil {
			t.Fatal("taken with only", n, "bytes")
		}
	}
}

func TestAPlanThatUsesWhatThePolicyDidNotNameIsRefused(t *testing.T) {
	plans := map[string]Plan{
		"NeedStopping": Sample(Request{Prompt: 1, Count: 8, Until: Until(1, 0, 4)}),
		"NeedSampling": Sample(Request{Prompt: 1, Count: 8, Sampling: Sampled(0.5, 64)}),
		"NeedUpdating": Train(PickAll(1)).Updating(16, 1),
	}
	needs := map[string]Needs{"NeedStopping": NeedStopping, "NeedSampling": NeedSampling, "NeedUpdating": NeedUpdating}
	for name, plan := range plans {
		policy := Policy[None, None]{Decide: func(None, *Run, *None, *View) (Plan, error) { return plan, nil }}
		_, err := Decide(policy, &Run{}, nil, &View{})
		if err == nil || !strings.HasSuffix(err.Error(), "for which the policy has to say `Needs: allot."+name+"`") {
			t.Fatal(name, err)
		}
		policy.Needs = needs[name]
		if _, err := Decide(policy, &Run{}, nil, &View{}); err != nil {
			t.Fatal(name, err)
		}
	}
}

// The first two outputs of SplitMix64 from seed 0.
func TestChanceIsKnown(t *testing.T) {
	chance := NewChance(0)
	if chance.Bits() != 0xE220A8397B1DCDAF || chance.Bits() != 0x6E789E6AA1B965F4 {
		t.Fatal("not SplitMix64")
	}
}
