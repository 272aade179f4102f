"""A comparison of random logs with random edits says what a naive comparison, record by record, says of them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.compare.join import Kind
from rmqtool.compare.log_side import Terms
from rmqtool.compare.result import Comparison, Relation
from tests.compare.stores import (
    FILE_SIZE,
    Expected,
    Message,
    compared,
    laid_out,
    naive,
    numbered,
    store_of,
    through_manifest,
)

SEEDS = range(60)


def some_messages(chance: random.Random) -> list[Message]:
    count = chance.choice((0, 1, 5, 40, 120))
    return numbered(
        [
            Message(
                chance.choice(("T", "Other", "Längerer Name")),
                chance.randrange(3),
                0,
                f"KEY{number}" if chance.random() < 0.8 else None,
                chance.randbytes(chance.choice((0, 1, 30, 700))),
                1_000_000 + number,
            )
            for number in range(count)
        ]
    )


def edited(messages: list[Message], chance: random.Random) -> list[Message]:
    """The messages with a few of them dropped, added, changed or exchanged; sometimes none, sometimes renumbered."""
    found = list(messages)
    for _ in range(chance.choice((0, 0, 1, 2, 6))):
        at = chance.randrange(len(found) + 1)
        what = chance.choice(("drop", "add", "change", "swap", "cut", "requeue"))
        if what == "add":
            found.insert(at, Message("T", 0, 900 + at, f"NEW{chance.random()}"))
        elif at == len(found):
            continue
        elif what == "drop":
            del found[at]
        elif what == "change" and found[at].key is not None:
            found[at] = replace(found[at], body=found[at].body + b"!")
        elif what == "swap":
            found[at], found[0] = found[0], found[at]
        elif what == "cut":
            del found[at:]
        elif what == "requeue":
            found[at] = replace(found[at], queue_id=7)
    return numbered(found) if chance.random() < 0.5 else found


def check(found: Comparison, expected: Expected) -> None:
    begins = [side.totals.begin for side in (found.a, found.b)]
    assert found.messages is not None
    assert {kind: found.messages[kind].count for kind in expected.counts} == expected.counts
    assert (found.divergence and found.divergence.record_offset) == expected.first_difference
    assert (found.relation is Relation.DIVERGED) == (expected.first_difference is not None)
    topics = {topic["topic"]: (topic["a"], topic["b"]) for topic in found.as_json()["topics"]}
    assert topics == expected.topics
    same = expected.first_difference is None and not any(expected.counts.values()) and begins[0] == begins[1]
    assert found.is_equal == same


@pytest.mark.parametrize("seed", SEEDS)
def test_random_edits(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    messages = some_messages(chance)
    other = edited(messages, chance)
    begin = chance.choice((0, 0, FILE_SIZE))
    records, others = laid_out(messages), laid_out(other, begin)
    expected = naive(records, others, (messages, other))
    stores = store_of(records), store_of(others)
    terms = Terms(block_size=chance.choice((256, 1024, 1 << 20)))
    direct = compared(
        *stores, terms, memory_max=chance.choice((1, 1 << 20)), partition_bytes=chance.choice((1 << 10, 1 << 20))
    )
    check(direct, expected)
    manifest = through_manifest(*stores, tmp_path / "manifest", terms)
    check(manifest, expected)
    left, right = direct.as_json(), manifest.as_json()
    for each in (left, right):
        if each["first_divergence"] is not None:
            del each["first_divergence"]["physical_offset"], each["first_divergence"]["precision"]
    assert left == right
    blocks = through_manifest(*stores, tmp_path / "manifest", terms, has_rows=False)
    assert blocks.messages is None
    assert blocks.is_equal == direct.is_equal
    if expected.first_difference is not None:
        assert blocks.divergence is not None
        assert blocks.divergence.record_offset <= expected.first_difference
        assert blocks.divergence.precision == "block"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_at_other_places_is_equal_by_messages(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    messages = some_messages(chance)
    records, others = laid_out(messages), laid_out(messages, FILE_SIZE * 3, FILE_SIZE // 2)
    stores = store_of(records), store_of(others, FILE_SIZE // 2)
    found = compared(*stores, by_messages=True)
    assert found.is_equal
    assert compared(*stores).is_equal == (not messages)
    assert found.messages is not None
    assert not any(differences.count for differences in found.messages.values())


def test_messages_in_another_order_are_counted() -> None:
    messages = [Message("T", 0, number, f"KEY{number}") for number in range(10)]
    order = [0, 1, 5, 2, 3, 4, 6, 9, 8, 7]
    shuffled = [replace(messages[at], queue_offset=place) for place, at in enumerate(order)]
    found = compared(store_of(laid_out(messages)), store_of(laid_out(shuffled)))
    assert found.messages is not None
    # KEY5 stands before KEY2 to KEY4 now, KEY9 before KEY7; KEY8 is where it was, which says nothing.
    reordered = found.messages[Kind.REORDERED]
    assert [int(row["queue_offset"]) for row, _ in reordered.listed] == [5, 9]
    assert found.messages[Kind.MOVED].count == 6
    assert found.messages[Kind.CHANGED].count == 0
