"""Seeds of the turns of a rollout, which follow from the seed that the allocator gives the rollout."""

from __future__ import annotations

import hashlib


def turn_seed(seed: int, turn: int) -> int:
    """The seed of a turn, of 63 bits: samplers take signed numbers. `turn` counts from 0."""
    if turn > 0:
        seed = int.from_bytes(hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=8).digest(), "big")
    return seed >> 1
