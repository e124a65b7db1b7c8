"""Words as blocks of eight: their hashes, which of them changed, and their way into and out of a log.

The hash of a block tells whether it is as it was, and the hashes of all blocks are folded into the checksum
of a file's part. A block's words go through chains of bijective steps, so that two blocks that differ in one
word never have the same hash; others have it with the odds of a 64-bit hash. Nothing here may change a result
without a new FORMAT in `squill.engine.state.manifest`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["WORDS", "changed_blocks", "copy_blocks", "gather_blocks", "hash_blocks", "put_blocks"]

Array = npt.NDArray[Any]

WORDS = 8
U1, U2, U3, U4, U5, U6, U7, U8 = (np.uint64(i) for i in range(1, 9))
U29 = np.uint64(29)
U32 = np.uint64(32)
FACTOR = np.uint64(0x9FB21C651E98DF25)
OTHER_FACTOR = np.uint64(0xD6E8FEB86659FD93)


@inlined
def step(h: np.uint64, word: np.uint64) -> np.uint64:
    h = (h ^ word) * FACTOR
    return h ^ (h >> U32)


@inlined
def block_hash(words: Array, at: np.uint64, seed: np.uint64) -> np.uint64:
    # Two chains, so that the processor has two multiplications under way.
    left = step(seed, words[at])
    right = step(~seed, words[at + U4])
    left = step(left, words[at + U1])
    right = step(right, words[at + U5])
    left = step(left, words[at + U2])
    right = step(right, words[at + U6])
    left = step(left, words[at + U3])
    right = step(right, words[at + U7])
    h = (left ^ (right * OTHER_FACTOR)) * FACTOR
    return h ^ (h >> U29)


@inlined
def copy_block(words: Array, at: np.uint64, out: Array, to: np.uint64) -> None:
    # Read before anything is written: the compiler cannot know that the two do not overlap.
    a, b, c, d = words[at], words[at + U1], words[at + U2], words[at + U3]
    e, f, g, h = words[at + U4], words[at + U5], words[at + U6], words[at + U7]
    out[to], out[to + U1], out[to + U2], out[to + U3] = a, b, c, d
    out[to + U4], out[to + U5], out[to + U6], out[to + U7] = e, f, g, h


@kernel
def hash_blocks(words: Array, seed: np.uint64, checksum: np.uint64, hashes: Array) -> np.uint64:
    """Return the checksum carried on over `words`; write each block's hash unless `hashes` is empty."""
    keep = len(hashes) > 0
    for block in range(len(words) // WORDS):
        h = block_hash(words, np.uint64(block) * U8, seed)
        if keep:
            hashes[block] = h
        checksum = step(checksum, h)
    return checksum


@kernel
def copy_blocks(words: Array, seed: np.uint64, checksum: np.uint64, hashes: Array, out: Array) -> np.uint64:
    """Do what `hash_blocks` does, and copy the words to `out` on the way: memory is read once."""
    keep = len(hashes) > 0
    for block in range(min(len(words), len(out)) // WORDS):
        at = np.uint64(block) * U8
        h = block_hash(words, at, seed)
        if keep:
            hashes[block] = h
        checksum = step(checksum, h)
        copy_block(words, at, out, at)
    return checksum


@kernel
def changed_blocks(words: Array, seed: np.uint64, hashes: Array, known: int, first: int, changed: Array) -> int:
    """Write the numbers of the blocks whose hash is another or not `known`, and their hashes; return how many.

    `first` is the number of the first block here; `hashes` and `known` count from it.
    """
    count = 0
    for block in range(len(words) // WORDS):
        h = block_hash(words, np.uint64(block) * U8, seed)
        if block >= known or h != hashes[block]:
            hashes[block] = h
            changed[count] = first + block
            count += 1
    return count


@kernel
def gather_blocks(
    words: Array, tail: Array, blocks: Array, seed: np.uint64, checksum: np.uint64, out: Array
) -> np.uint64:
    """Copy blocks one after the other, return the checksum carried on; the block behind the last of `words` is `tail`.

    `out` has room for as many blocks as there are numbers.
    """
    for i in range(min(len(blocks), len(out) // WORDS)):
        at, to = np.uint64(blocks[i]) * U8, np.uint64(i) * U8
        if at + U8 <= np.uint64(len(words)):
            copy_block(words, at, out, to)
        else:
            copy_block(tail, np.uint64(0), out, to)
        checksum = step(checksum, block_hash(out, to, seed))
    return checksum


@kernel
def put_blocks(words: Array, blocks: Array, content: Array) -> None:
    """Copy blocks to their places; those beyond the end of `words` are left out."""
    for i in range(len(blocks)):
        source, target = i * WORDS, np.int64(blocks[i]) * WORDS
        if 0 <= target and target + WORDS <= len(words):
            for j in range(WORDS):
                words[target + j] = content[source + j]
