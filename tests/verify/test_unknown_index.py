"""An index whose slot count nobody knows is not checked, and that is said; an empty one needs no slot count."""

from __future__ import annotations

import random

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

NAME = "5.5.0-clean-basic"


def test_an_index_of_unknown_slot_count_is_left_out(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    whole, found = verified(path, "5.5.0")
    assert whole.complete
    assert whole.left_out_bytes == 0
    size = 0
    for place in (path / "index").iterdir():
        size += place.stat().st_size
        place.write_bytes(random.Random(7).randbytes(place.stat().st_size))
    summary, found = verified(path, "5.5.0")
    assert not summary.complete
    assert summary.left_out_bytes == size
    assert above_note(found) == {}
    ran = rmqtool("verify", path, "--broker-version", "5.5.0")
    assert ran.code == 0
    assert "--index-slots" in ran.err
    assert "not all of the store was checked" in ran.out


def test_an_empty_index_is_checked_without_its_slot_count(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    for place in (path / "index").iterdir():
        place.write_bytes(bytes(place.stat().st_size))
    summary, found = verified(path, "5.5.0")
    assert summary.complete
    # A broker makes the first file before it has a key, and the further ones with their first entry.
    further = len(list((path / "index").iterdir())) - 1
    assert further > 0
    assert above_note(found) == {"index.missing-key": 1, "index.zero-file": further}
