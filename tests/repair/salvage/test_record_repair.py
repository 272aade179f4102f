"""Damaged records that are kept: by what proves them, or because a person wants them as they are."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import BODY_CRC_AT, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
from rmqtool.formats.record_crc import record_crc_matches
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.salvage.plan import SalvageOptions
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.store.source import read_range
from tests.repair.salvage.trial import (
    Files,
    Healthy,
    Salvaged,
    flaws,
    flip,
    healthy,
    overwrite,
    salvaged,
    without_queues,
)

STORES = {"plain": ("many-files", "5.5.0"), "record-crc": ("record-crc", "5.5.0"), "ipv6": ("ipv6", "4.9.7")}
BITS = SalvageOptions(agreed=frozenset({RepairedRecord.FLIPPED_BIT}), threads=1)
AS_IS = SalvageOptions(agreed=frozenset({RepairedRecord.AS_IS}), threads=1)


@cache
def _chosen(name: str) -> tuple[Healthy, int]:
    """A store, and the smallest record of it that has a body, but for the last ones."""
    store = healthy(*STORES[name])
    places = sorted(store.content.records)[10:-10]
    return store, min(
        (at for at in places if _body_length(store, at) > 8), key=lambda at: len(store.content.records[at])
    )


def _head_size(store: Healthy, at: int) -> int:
    field = SYS_FLAG_AT
    sys_flag = int.from_bytes(store.content.records[at][field : field + 4], "big")
    return commitlog.head_size(sys_flag)


def _body_length(store: Healthy, at: int) -> int:
    head = _head_size(store, at)
    return int.from_bytes(store.content.records[at][head - 4 : head], "big")


def _bits_of(name: str, what: str) -> list[int]:
    store, at = _chosen(name)
    head = _head_size(store, at)
    start, length = {"body": (head, _body_length(store, at)), "crc": (BODY_CRC_AT, 4)}[what]
    return list(range(8 * start, 8 * (start + length)))


def _salvaged(store: Healthy, files: Files, folder: Path, options: SalvageOptions | None = None) -> Salvaged:
    found = salvaged(store.store(files), store.version, folder, options)
    assert flaws(found, store.untouched(files), store.version, folder, fits=store.readers) == []
    return found


def _flipped(name: str, bit: int) -> tuple[Healthy, int, Files]:
    store, at = _chosen(name)
    files = dict(store.files)
    path, position = store.file_of(at)
    flip(files, path, 8 * position + bit)
    return store, at, files


@pytest.mark.parametrize("what", ["body", "crc"])
@pytest.mark.parametrize("name", STORES)
def test_any_flipped_bit_is_put_right_if_it_may_be(tmp_path: Path, name: str, what: str) -> None:
    bits = _bits_of(name, what)
    for bit in bits[:: 1 if what == "crc" else max(1, len(bits) // 24)]:
        store, at, files = _flipped(name, bit)
        found = salvaged(store.store(files), store.version, tmp_path, BITS)
        assert found.content.records[at] == store.content.records[at], bit
        assert found.made.outcome.repaired == Counter({RepairedRecord.FLIPPED_BIT: 1})
        assert found.made.outcome.lost == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_every_flipped_bit_of_a_body_is_put_right(tmp_path: Path, name: str) -> None:
    for bit in _bits_of(name, "body"):
        store, at, files = _flipped(name, bit)
        found = salvaged(store.store(files), store.version, tmp_path, BITS)
        assert found.content.records[at] == store.content.records[at], bit


@pytest.mark.parametrize("name", STORES)
def test_nothing_is_put_right_that_nobody_agreed_to(tmp_path: Path, name: str) -> None:
    store, at, files = _flipped(name, _bits_of(name, "body")[13])
    found = _salvaged(store, files, tmp_path)
    assert at not in found.content.records
    assert found.made.outcome.repairable == Counter({RepairedRecord.FLIPPED_BIT: 1})
    assert found.made.outcome.lost_messages == 1


@pytest.mark.parametrize("name", STORES)
def test_two_flipped_bits_are_no_proof(tmp_path: Path, name: str) -> None:
    bits = _bits_of(name, "body")
    store, at, files = _flipped(name, bits[3])
    path, position = store.file_of(at)
    flip(files, path, 8 * position + bits[-5])
    found = _salvaged(store, files, tmp_path, BITS)
    assert at not in found.content.records
    assert not found.made.outcome.repaired


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
@pytest.mark.parametrize("name", STORES)
def test_a_damaged_body_as_it_is(tmp_path: Path, name: str, *, has_queues: bool) -> None:
    store, at = _chosen(name)
    head, length = _head_size(store, at), _body_length(store, at)
    files = dict(store.files)
    path, position = store.file_of(at)
    overwrite(files, path, position + head, length - 1)
    if not has_queues:
        without_queues(files)
    found = _salvaged(store, files, tmp_path, AS_IS)
    kept = found.content.records[at]
    assert kept[head : head + length - 1] == bytes(length - 1)
    assert found.made.outcome.repaired == Counter({RepairedRecord.AS_IS: 1})
    assert found.made.outcome.lost == []
    assert name != "record-crc" or record_crc_matches(kept)


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 4), (4, 4), (0, 8), (3, 1), (7, 1)],
    ids=["size", "magic", "both", "size-byte", "magic-byte"],
)
@pytest.mark.parametrize("name", STORES)
def test_size_and_magic_are_told_by_all_else(
    tmp_path: Path, name: str, start: int, length: int, *, has_queues: bool
) -> None:
    store, at = _chosen(name)
    files = dict(store.files)
    path, position = store.file_of(at)
    raw = store.content.records[at]
    other = bytes(byte ^ 0x5A for byte in raw[start : start + length])
    files[path] = files[path][: position + start] + other + files[path][position + start + length :]
    if not has_queues:
        without_queues(files)
    found = _salvaged(store, files, tmp_path)
    assert found.content.records[at] == raw
    assert found.made.outcome.repaired == Counter({RepairedRecord.FRAME: 1})


@pytest.mark.parametrize("name", STORES)
def test_its_own_offset_is_where_it_lies(tmp_path: Path, name: str) -> None:
    store, at = _chosen(name)
    files = dict(store.files)
    path, position = store.file_of(at)
    overwrite(files, path, position + PHYSICAL_OFFSET_AT + 5, 3)
    found = _salvaged(store, files, tmp_path)
    assert found.content.records[at] == store.content.records[at]
    assert found.made.outcome.repaired == Counter({RepairedRecord.OWN_OFFSET: 1})


@pytest.mark.parametrize("name", STORES)
def test_a_copy_at_the_end_is_no_message(tmp_path: Path, name: str) -> None:
    """Where the last record is damaged, an old record's bytes after it stand for no other message."""
    store, at = _chosen(name)
    files = dict(store.files)
    last = max(store.content.records)
    path, position = store.file_of(last)
    end = position + len(store.content.records[last])
    overwrite(files, path, position, 8)
    files[path] = b"".join((files[path][:end], copy := store.content.records[at], files[path][end + len(copy) :]))
    found = _salvaged(store, files, tmp_path)
    assert RepairedRecord.OWN_OFFSET not in found.made.outcome.repaired
    assert found.content.records.keys() >= store.content.records.keys() - {last}


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
def test_a_copy_at_the_end_of_a_message_that_has_expired_is_none(tmp_path: Path, *, has_queues: bool) -> None:
    """Later records of its queue lie before it in the log, and its own offset is an earlier one."""
    store, _ = _chosen("plain")
    files = dict(store.files)
    path, end = store.file_of(last := max(store.content.records))
    copy = store.content.records[sorted(store.content.records)[1]]
    end += len(store.content.records[last])
    files[path] = b"".join((files[path][:end], copy, files[path][end + len(copy) :]))
    del files[store.log_files[0]]
    if not has_queues:
        without_queues(files)
    found = salvaged(store.store(files), store.version, tmp_path)
    assert not found.made.outcome.repaired
    assert flaws(found, store.untouched(files), store.version, tmp_path, fits=store.readers) == []


@pytest.mark.parametrize("options", [None, AS_IS], ids=["", "as-is"])
@pytest.mark.parametrize("content", [bytes(20), bytes(35), bytes(range(0xA0, 0xB4)), b"\xda\xa3\x20\xa7" * 9])
def test_a_record_crc_that_is_overwritten_is_damage(
    tmp_path: Path, content: bytes, options: SalvageOptions | None
) -> None:
    """A broker with `forceVerifyPropCRC` ends its log there."""
    store, at = _chosen("record-crc")
    files = dict(store.files)
    path, position = store.file_of(at)
    end = position + len(store.content.records[at])
    files[path] = files[path][: end - len(content)] + content + files[path][end:]
    found = _salvaged(store, files, tmp_path, options)
    kept = found.content.records.get(at)
    assert (kept is not None) is (options is AS_IS)
    assert kept is None or record_crc_matches(kept)


def test_tombstones_carry_the_record_crc_that_the_broker_is_set_to_write(tmp_path: Path) -> None:
    """No record of the log is left to show it."""
    store, _ = _chosen("record-crc")
    files = dict(store.files)
    for at in store.content.records:
        path, position = store.file_of(at)
        overwrite(files, path, position, 90)
    build = BuildOptions(compiled=False, record_crc=True)
    mended = salvaged(store.store(files), store.version, tmp_path, build=build)
    assert mended.content.tombstones
    for each in mended.content.tombstones:
        path, position = store.file_of(each.physical_offset)
        assert record_crc_matches(read_range(mended.after.view.open(path), position, each.size))


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
@pytest.mark.parametrize("field", ["queue_id", "queue_offset", "topic", "topic-no-utf8"])
@pytest.mark.parametrize("name", ["plain", "ipv6"])
def test_a_head_is_what_queue_or_neighbours_say(tmp_path: Path, name: str, field: str, *, has_queues: bool) -> None:
    store, at = _chosen(name)
    files = dict(store.files)
    path, position = store.file_of(at)
    raw = store.content.records[at]
    if field.startswith("topic"):
        place = raw.index(
            b"orders" if b"orders" in raw else b"payments", _head_size(store, at) + _body_length(store, at)
        )
    else:
        place = commitlog.MESSAGE_V1.position(field) + (3 if field == "queue_id" else 6)
    flip(files, path, 8 * (position + place) + (7 if field == "topic-no-utf8" else 2))
    if not has_queues:
        without_queues(files)
    found = salvaged(store.store(files), store.version, tmp_path)
    assert found.content.records[at] == raw
    assert found.made.outcome.repaired == Counter({RepairedRecord.HEAD: 1})
    assert flaws(found, store.content, store.version, tmp_path, fits=store.readers) == []


@pytest.mark.parametrize("bits", [0x4, 0xC], ids=["prepared", "rollback"])
@pytest.mark.parametrize("name", ["plain", "ipv6"])
def test_a_message_that_stands_in_its_queue_is_no_half_message(tmp_path: Path, name: str, bits: int) -> None:
    store, at = _chosen(name)
    files = dict(store.files)
    path, position = store.file_of(at)
    place = position + SYS_FLAG_AT + 3
    files[path] = files[path][:place] + bytes([files[path][place] | bits]) + files[path][place + 1 :]
    found = salvaged(store.store(files), store.version, tmp_path)
    assert found.content.records[at] == store.content.records[at]
    assert found.made.outcome.repaired == Counter({RepairedRecord.HEAD: 1})
    assert flaws(found, store.content, store.version, tmp_path, fits=store.readers) == []


@pytest.mark.parametrize("has_queues", [True, False], ids=["", "no-queues"])
def test_a_head_beside_damage_hides_nothing_behind_it(tmp_path: Path, *, has_queues: bool) -> None:
    """Its message would stand far ahead, and all that follow would count as repeated."""
    store, at = _chosen("plain")
    files = dict(store.files)
    path, position = store.file_of(at)
    flip(files, path, 8 * (position + QUEUE_OFFSET_AT + 6) + 2)
    standing = next(each for each in store.content.standings if each.physical_offset == at)
    (lost,) = (each for each in store.content.standings if each[:3] == (*standing[:2], standing.queue_offset + 1))
    overwrite(files, *store.file_of(lost.physical_offset), lost.size)
    if not has_queues:
        without_queues(files)
    found = salvaged(store.store(files), store.version, tmp_path)
    intact = store.untouched(files)
    assert found.content.records[at] == store.content.records[at]
    assert flaws(found, intact, store.version, tmp_path, fits=store.readers) == []


@pytest.mark.parametrize(
    ("field", "bit"),
    [("queue_id", 24), ("queue_offset", 7), ("topic", 7)],
    ids=["other-queue", "negative", "topic-no-utf8"],
)
def test_an_impossible_head_goes_where_its_unit_says_though_damage_follows(
    tmp_path: Path, field: str, bit: int
) -> None:
    """The last record of its queue; what is damaged after it could have held the message that its queue lacks."""
    store = healthy("tiny", "5.5.0")
    at = max(each.physical_offset for each in store.content.standings if each[:2] == ("orders", 1))
    files = dict(store.files)
    path, position = store.file_of(at)
    raw = store.content.records[at]
    topic_at = raw.index(b"orders", _head_size(store, at) + _body_length(store, at))
    field_at = topic_at if field == "topic" else commitlog.MESSAGE_V1.position(field)
    flip(files, path, 8 * (position + field_at) + bit)
    after = min(place for place in store.content.records if place > at)
    overwrite(files, *store.file_of(after), len(store.content.records[after]))
    salvage = _salvaged(store, files, tmp_path)
    assert salvage.content.records[at] == store.content.records[at]
    assert salvage.made.outcome.repaired == Counter({RepairedRecord.HEAD: 1})
