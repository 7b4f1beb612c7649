"""Chance: a small generator grown from `view.seed`, a policy's only source of it."""

BITS = 2**64 - 1


class Chance:
    """SplitMix64 (Steele, Lea, Flood 2014). The same seed gives the same draws on every machine,
    and in every language that has an SDK."""

    def __init__(self, seed: int) -> None:
        """A generator grown from the seed of a view."""
        self.grown = seed

    def bits(self) -> int:
        """64 random bits."""
        self.grown = z = (self.grown + 0x9E37_79B9_7F4A_7C15) & BITS
        z = (z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9 & BITS
        z = (z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB & BITS
        return z ^ (z >> 31)

    def unit(self) -> float:
        """Uniform in [0, 1), with 53 bits."""
        return (self.bits() >> 11) / 2**53

    def below(self, n: int) -> int:
        """Uniform in 0..n-1. `n` must not be 0."""
        return self.bits() * n >> 64

    def draw(self, n: int, k: int) -> list[int]:
        """`k` of 0..n-1 without replacement, in the order drawn; all of them, shuffled, if
        `k >= n`."""
        every = list(range(n))
        k = min(k, n)
        for i in range(k):
            j = i + self.below(n - i)
            every[i], every[j] = every[j], every[i]
        return every[:k]
