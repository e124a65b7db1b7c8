from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from squill.exchange.checksum import checksum
from squill.exchange.kernels.checksum import STRIPE

CONTENT = bytes(range(256)) * 5


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.binary(max_size=3 * STRIPE), max_size=8))
def test_pieces_have_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    assert checksum(pieces) == checksum([b"".join(pieces)])


def test_it_stays_what_it_is() -> None:
    # Files that an earlier process has left are read with it.
    assert checksum([]) == -4253557532052193294
    assert checksum([CONTENT]) == -2783038491606691167


def test_a_changed_byte_changes_it() -> None:
    places = range(0, len(CONTENT), 37)
    found = {checksum([CONTENT[:at], bytes([CONTENT[at] ^ 1]), CONTENT[at + 1 :]]) for at in places}
    assert len({checksum([CONTENT]), *found}) == 1 + len(places)


def test_words_that_change_places_change_it() -> None:
    words = [bytes([k]) * 8 for k in range(3 * STRIPE // 8)]
    found = {checksum([words[k], *words[1:k], words[0], *words[k + 1 :]]) for k in range(1, len(words))}
    assert len({checksum(words), *found}) == len(words)


def test_zeros_at_the_end_change_it() -> None:
    assert len({checksum([CONTENT, bytes(k)]) for k in range(2 * STRIPE)}) == 2 * STRIPE
