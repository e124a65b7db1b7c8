from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.columns import all_valid, read_only
from squill.engine.kernels.hashing import hash_bytes
from squill.exchange.checksum import checksum


def hash_of(data: bytes) -> int:
    """Return XXH64 as the hash of a text of these bytes has it."""
    content = np.frombuffer(data, np.uint8)
    out = np.empty(1, np.uint64)
    hash_bytes(read_only(np.array([0, len(data)])), read_only(content), all_valid(1), out, True)
    return int(out.view(np.int64)[0])


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.binary(max_size=100), max_size=8))
def test_pieces_have_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert checksum(pieces) == checksum([whole]) == hash_of(whole)


def test_a_changed_byte_changes_it() -> None:
    data = bytes(range(256)) * 5
    found = {checksum([data[:at], bytes([data[at] ^ 1]), data[at + 1 :]]) for at in range(0, len(data), 37)}
    assert len({checksum([data]), *found}) == 1 + len(range(0, len(data), 37))
