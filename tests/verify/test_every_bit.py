"""Every bit of a small store, flipped one at a time: found, or in a field that nothing can judge.

A slice of them as a rule; the slow test flips all, but of the untouched ends of files a part only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Unpacked
from tests.verify.flips import FlippedStore
from tests.verify.unprotected_fields import TABLE

ROOT = Path(__file__).resolve().parent.parent.parent
STORES = ("5.5.0-transaction", "4.9.7-ipv6")
SLICE = 1501
"""Every so many-th bit; a prime, so that all bits of all bytes have their turn."""
TAIL_SLICE = 211
SHARES = 16
"""The slow test in parts, so that each of them ends within minutes."""

UNJUDGED = {
    ("commitlog", name)
    for name in (
        "flag", "sys_flag", "born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host", "reconsume_times",
        "prepared_transaction_offset", "body_crc", "properties", "blank", "queue_id of no queue",
        "queue_offset of no queue", "topic of no queue", "body_length of no body",
    )
} | {
    ("index", name)
    for name in (
        "begin_timestamp_ms", "end_timestamp_ms", "used_slot_count", "entry 0", "time_delta_seconds of the first entry",
    )
} | {("checkpoint", "times and offsets")}  # fmt: skip
"""The fields of docs/unprotected-fields.md, as `flips` names them."""
JUDGED_HIGH_BITS = {"store_timestamp_ms", "prepared_transaction_offset", "begin_timestamp_ms", "used_slot_count"}
"""Fields of which only the low bits are beyond judgement: a flip in their first byte is found."""


@pytest.mark.parametrize("name", STORES)
def test_a_flipped_bit_is_found_or_beyond_judgement(golden: Unpacked, name: str) -> None:
    store = FlippedStore.load(golden(name), name[:5])
    _flip(store, list(store.bits())[::SLICE])


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", STORES)
def test_every_flipped_bit_is_found_or_beyond_judgement(golden: Unpacked, name: str, share: int) -> None:
    store = FlippedStore.load(golden(name), name[:5])
    bits = [
        flip
        for number, flip in enumerate(store.bits())
        if number % TAIL_SLICE == 0 or store.field_of(flip)[1] not in ("zero tail", "slot", "zeros", "blank")
    ]
    _flip(store, bits[share::SHARES])


def _flip(store: FlippedStore, bits: list[tuple[str, int]]) -> None:
    healthy = store.findings()
    unseen: Counter[tuple[str, str]] = Counter()
    for flip in bits:
        if store.findings(flip) == healthy:
            unseen[store.field_of(flip)] += 1
    assert set(unseen) <= UNJUDGED, unseen
    assert unseen


@pytest.mark.parametrize("kind_and_field", sorted(UNJUDGED))
def test_the_table_names_every_such_field(kind_and_field: tuple[str, str]) -> None:
    kind, name = kind_and_field
    assert any(row.file == kind and name.partition(" of ")[0] in row.field for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.file}-{row.field}")
def test_the_table_names_no_other(row: object) -> None:
    found = next(known for known in TABLE if known is row)
    assert any(kind == found.file and name.partition(" of ")[0] in found.field for kind, name in UNJUDGED)
