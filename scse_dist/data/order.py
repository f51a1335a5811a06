"""The order of samples: a pure function of seed and index, the same for every number of ranks, in O(1) memory.

Sample number g of a run (counted over epochs, from 0) is window ``window_at(g)``. Within an epoch each window comes
exactly once, and a resume at any g needs nothing but g.
"""

import hashlib

_ROUNDS = 6


def window_at(sample: int, num_windows: int, seed: int) -> int:
    """The window that is the ``sample``-th of a run, each epoch being a permutation of its own.

    The permutation is a Feistel network over the next even power of two, walked until it lands inside the range; it
    takes at most a few rounds and no table.
    """
    assert sample >= 0 and num_windows >= 1
    epoch, position = divmod(sample, num_windows)
    half_bits = max(1, ((num_windows - 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    position = _permute(position, half_bits, keys)
    while position >= num_windows:
        position = _permute(position, half_bits, keys)
    return position


def _round_keys(seed: int, epoch: int) -> list[int]:
    digest = hashlib.blake2b(f"sample order {seed} {epoch}".encode(), digest_size=8 * _ROUNDS).digest()
    return [int.from_bytes(digest[i : i + 8], "little") for i in range(0, len(digest), 8)]


def _permute(value: int, half_bits: int, keys: list[int]) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return left << half_bits | right


def _mix(value: int) -> int:
    """The finaliser of MurmurHash3: every bit of the input moves every bit of the output."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    value = ((value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD) & 0xFFFF_FFFF_FFFF_FFFF
    value = ((value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53) & 0xFFFF_FFFF_FFFF_FFFF
    return value ^ value >> 33
