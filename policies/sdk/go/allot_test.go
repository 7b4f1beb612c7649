package allot

import (
	"reflect"
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

// The first two outputs of SplitMix64 from seed 0.
func TestChanceIsKnown(t *testing.T) {
	chance := NewChance(0)
	if chance.Bits() != 0xE220A8397B1DCDAF || chance.Bits() != 0x6E789E6AA1B965F4 {
		t.Fatal("not SplitMix64")
	}
}
