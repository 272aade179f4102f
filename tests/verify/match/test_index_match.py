"""The compiled passes over an index file tell what the plain ones tell."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rmqtool.engine.dispatch import index_entries
from rmqtool.findings.finding import Finding
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from rmqtool.verify.match import index_match
from rmqtool.verify.match.log_chunk import ExpectedIndex
from rmqtool.verify.survey import index_map
from rmqtool.verify.survey.index_map import BlockChains, EntrySums, compiled_chains, entry_block, plain_chains
from rmqtool.verify.survey.queue_map import Array
from tests.conftest import Unpacked
from tests.verify.flips import FlippedStore


@pytest.mark.parametrize(("slot_count", "counts"), [(1, (5, 3)), (7, (100, 1, 50)), (5_000, (20_000, 20_000))])
@pytest.mark.parametrize("negative", [False, True])
def test_both_loops_agree(slot_count: int, counts: tuple[int, ...], negative: bool) -> None:
    chance = np.random.default_rng(slot_count)
    plain, compiled = np.zeros(slot_count, np.int32), np.zeros(slot_count, np.int32)
    number, sums = 1, EntrySums.of(sum(counts))
    for count in counts:
        entries = np.zeros(count, ENTRY.dtype)
        entries["key_hash"] = chance.integers(-(1 << 31) if negative else 0, 1 << 31, count)
        entries["physical_offset"] = chance.integers(0, 1 << 62, count)
        entries["previous_entry"] = _plain(entries, number, plain.copy()).expected
        entries["previous_entry"][:: count // 2 or 1] += 1
        block = entry_block(number, bytearray(entries.tobytes()), slot_count, None)
        of_kernel = entry_block(number, bytearray(entries.tobytes()), slot_count, sums)
        assert block.has_negative == of_kernel.has_negative
        assert np.array_equal(block.slots, of_kernel.slots)
        assert np.array_equal(block.physical_offsets, of_kernel.physical_offsets)
        expected = plain_chains(block, plain)
        for one, other in zip(compiled_chains(of_kernel, compiled), expected, strict=True):
            assert np.array_equal(one, other)
        assert np.array_equal(plain, compiled)
        assert (expected.expected < np.arange(number, number + count)).all()
        assert set(range(0, count, count // 2 or 1)) <= set(expected.wrong.tolist())
        assert negative or len(expected.wrong) == len(range(0, count, count // 2 or 1))
        number += count


def test_nothing_wrong_is_found_where_nothing_is() -> None:
    entries = np.zeros(100, ENTRY.dtype)
    entries["key_hash"] = np.arange(100) % 9
    entries["previous_entry"] = _plain(entries, 1, np.zeros(7, np.int32)).expected
    of_kernel = entry_block(1, bytearray(entries.tobytes()), 7, EntrySums.of(100))
    assert not len(_plain(entries, 1, np.zeros(7, np.int32)).wrong)
    assert not len(compiled_chains(of_kernel, np.zeros(7, np.int32)).wrong)


def _plain(entries: Array, first_number: int, latest: Array) -> BlockChains:
    return plain_chains(entry_block(first_number, bytearray(entries.tobytes()), len(latest), None), latest)


def _findings(store: FlippedStore, flip: tuple[str, int] | None, *, compiled: bool) -> list[Finding]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (index_entries, index_map, index_match):
            patch.setattr(module, "is_worth", lambda _count, _least: compiled)
        return store.findings(flip)


@pytest.mark.parametrize("name", ["5.5.0-transaction", "4.9.7-ipv6"])
def test_a_flipped_bit_is_the_same_finding(golden: Unpacked, name: str) -> None:
    store = FlippedStore.load(golden(name), name[:5])
    chance = random.Random(name)
    bits = [
        flip
        for flip in store.bits()
        if flip[0].startswith("index") and store.field_of(flip)[1] not in ("zero tail", "slot")
    ]
    log = [flip for flip in store.bits() if flip[0].startswith("commitlog")]
    assert _findings(store, None, compiled=True) == _findings(store, None, compiled=False)
    for flip in chance.sample(bits, 60) + chance.sample(log[: len(log) // 8], 40):
        assert _findings(store, flip, compiled=True) == _findings(store, flip, compiled=False), store.field_of(flip)


def test_entries_that_agree_need_no_second_look(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bool] = []
    true_met = index_match.IndexMatch._met_in_order

    def watched(match: index_match.IndexMatch, expected: ExpectedIndex) -> bool:
        answers.append(true_met(match, expected))
        return answers[-1]

    monkeypatch.setattr(index_match.IndexMatch, "_met_in_order", watched)
    monkeypatch.setattr(index_match, "is_worth", lambda _count, _least: True)
    store = FlippedStore.load(golden("5.5.0-transaction"), "5.5.0")
    store.findings()
    entries = next(path for path in store.files if path.startswith("index"))
    first = 8 * (HEADER_SIZE + SLOT_SIZE * (store.settings.index_slot_count or 0) + ENTRY_SIZE)
    store.findings((entries, first))
    assert answers == [True, False, False]  # as the version enters them, and as older ones do
