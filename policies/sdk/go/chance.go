package allot

import "math/bits"

// Chance is SplitMix64 (Steele, Lea, Flood 2014), grown from the seed of a view: a policy's only
// source of chance. The same seed gives the same draws on every machine, and in every language of
// this kit.
type Chance struct{ state uint64 }

// NewChance is a generator grown from the seed of a view.
func NewChance(seed uint32) *Chance { return &Chance{uint64(seed)} }

// Bits gives 64 random bits.
func (c *Chance) Bits() uint64 {
	c.state += 0x9E3779B97F4A7C15
	z := c.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Unit is uniform in [0, 1), with 53 bits.
func (c *Chance) Unit() float64 { return float64(c.Bits()>>11) / (1 << 53) }

// Below is uniform in 0..n. n must not be 0.
func (c *Chance) Below(n int) int {
	upper, _ := bits.Mul64(c.Bits(), uint64(n))
	return int(upper)
}

// Draw gives k of 0..n without replacement, in the order drawn; all of them, shuffled, if k >= n.
func (c *Chance) Draw(n, k int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	k = min(k, n)
	for i := range k {
		j := i + c.Below(n-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:k]
}
