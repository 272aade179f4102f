"""The slot count comes out of the chains, also of damaged files, and is never guessed."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from rmqtool.formats.index import DEFAULT_SLOT_COUNT, ENTRY_SIZE, HEADER_SIZE, entry_position, slot_position
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.index_slots import infer_entry_count, infer_slot_count, slot_count_of
from rmqtool.store.source import BytesSource, FileSource
from rmqtool.store.view import DirectoryView, Entry, EntryKind

NEXT_ENTRY = slice(36, 40)


def index_file(
    slot_count: int, entry_count: int, used: int, seed: int = 1, low_bits: int = 0, tag_part: float = 0.0
) -> bytearray:
    """An index file as `IndexFile#putKey` fills it, of made-up keys.

    Args:
        low_bits: so many of each position are zero.
        tag_part: this part of the entries has one and the same key.
    """
    chance = random.Random(seed)
    content = bytearray(HEADER_SIZE + 4 * slot_count + ENTRY_SIZE * entry_count)
    position = first = 0
    for number in range(1, used + 1):
        position += (1 + chance.randrange(500)) << low_bits
        first = first or position
        key_hash = 77_777 if chance.random() < tag_part else chance.randrange(1 << 31)
        slot = slot_position(key_hash % slot_count)
        (previous,) = struct.unpack_from(">i", content, slot)
        struct.pack_into(
            ">iqii", content, entry_position(number, slot_count), key_hash, position, number // 50, previous
        )
        struct.pack_into(">i", content, slot, number)
    struct.pack_into(">qqqqii", content, 0, 1000, 2000, first, position, used, used + 1)
    return content


def count_of(content: bytes | bytearray) -> int | None:
    return slot_count_of(BytesSource("index", bytes(content)))


@pytest.mark.parametrize("slot_count", [1, 2, 7, 100, 1001, 5003])
@pytest.mark.parametrize("used", [1, 2, 3, 40, 199])
@pytest.mark.parametrize("low_bits", [0, 16])
def test_the_count_of_a_whole_file(slot_count: int, used: int, low_bits: int) -> None:
    for seed in range(5):
        assert count_of(index_file(slot_count, 200, used, seed, low_bits)) == slot_count


def test_the_default_count_is_found_in_a_sparse_file(tmp_path: Path) -> None:
    small = index_file(DEFAULT_SLOT_COUNT, 300, 200)
    path = tmp_path / "index"
    with path.open("wb") as file:
        for at in range(0, len(small), 4096):
            if small[at : at + 4096].strip(b"\0"):
                file.seek(at)
                file.write(small[at : at + 4096])
        file.truncate(420_000_040)
    for said in (201, 0, -5, 2**31 - 1):
        with path.open("r+b") as file:
            file.seek(36)
            file.write(struct.pack(">i", said))
        with FileSource.open(path) as source:
            assert slot_count_of(source) == DEFAULT_SLOT_COUNT


@pytest.mark.parametrize("said", [0, 1, -1, 2, 150, 198, 2**31 - 1, -(2**31)])
def test_a_damaged_counter_is_made_up_for_by_the_slots(said: int) -> None:
    content = index_file(100, 200, 199)
    content[NEXT_ENTRY] = struct.pack(">i", said)
    assert count_of(content) == 100


@pytest.mark.parametrize("difference", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("keys", [1, 3])
def test_a_counter_near_the_right_one_moves_no_entry(difference: int, keys: int) -> None:
    """The log begins at physical offset 0, which the empty bytes in front of the first entry name too."""
    content = index_file(100, 200, 150)
    struct.pack_into(">q", content, 16, 0)
    for number in range(1, keys + 1):
        struct.pack_into(">q", content, entry_position(number, 100) + 4, 0)
    content[NEXT_ENTRY] = struct.pack(">i", 151 + difference)
    assert count_of(content) == 100


def test_one_tag_of_all_messages_hides_no_count() -> None:
    """From 5.4.0 on tags are entered too: a third of the entries and more lie in a few chains."""
    content = index_file(5003, 60_000, 59_999, tag_part=0.6)
    assert count_of(content) == 5003


def test_damage_to_chains_does_not_hide_the_count() -> None:
    content = index_file(100, 200, 199)
    for number in (10, 60, 61, 120):  # chains in a circle, and to themselves
        struct.pack_into(">i", content, entry_position(number, 100) + 16, number + number % 2)
    assert count_of(content) == 100
    assert count_of(bytes(40) + content[40:]) == 100
    assert count_of(content[:-1]) == 100
    assert count_of(content + bytes(77)) == 100


@pytest.mark.parametrize("slot_count", [7, 100, 5003])
@pytest.mark.parametrize("used", [3, 40, 199])
def test_where_all_slots_are_lost_the_ends_tell_the_count(slot_count: int, used: int) -> None:
    for seed in range(20):
        content = index_file(slot_count, 200, used, seed)
        content[HEADER_SIZE : entry_position(0, slot_count)] = bytes(4 * slot_count)
        assert count_of(content) == slot_count
        for shift in (4, 20):  # as if there were slots more, or an entry
            moved = content[:HEADER_SIZE] + bytes(shift) + content[HEADER_SIZE:-shift]
            assert count_of(moved) in {slot_count + shift // 4, None}
        content[entry_position(used, slot_count) + 11] ^= 1  # the last entry names another record
        assert count_of(content) is None


def test_where_nothing_proves_a_count_there_is_none() -> None:
    content = index_file(100, 200, 199)
    for sample in (b"", bytes(39), bytes(40), bytes(4440), content[:40], content[:300], index_file(100, 200, 0)):
        assert count_of(sample) is None
    only = index_file(100, 200, 1)
    only[NEXT_ENTRY] = bytes(4)
    assert count_of(only) is None


@pytest.mark.parametrize(
    "content",
    [
        random.Random(1).randbytes(1 << 20),
        bytes(40) + b"\0\0\0\1" * 262_134,
        b"\0\0\0\7" * 262_144,
        b"\x7f" * (1 << 20),
        b"\xff" * (1 << 20),
        random.Random(2).randbytes(4 << 20),
    ],
)
def test_senseless_bytes_prove_nothing_and_end_soon(content: bytes) -> None:
    assert count_of(content) is None


def test_random_damage_never_makes_another_count() -> None:
    chance = random.Random(3)
    for _ in range(60):
        content = index_file(100, 200, chance.randrange(5, 199), chance.randrange(1000))
        for _ in range(chance.randrange(1, 60)):
            at = chance.randrange(len(content))
            length = chance.randrange(1, 80)
            content[at : at + length] = chance.randbytes(min(length, len(content) - at))
        assert count_of(content[: chance.randrange(len(content) // 2, len(content) + 1)]) in {100, None}


def store_of(root: Path, files: dict[str, bytes], settings: Settings | None = None) -> Store:
    (root / "index").mkdir(parents=True)
    for name, content in files.items():
        (root / "index" / name).write_bytes(content)
    return survey(DirectoryView(root), settings)


def test_one_healthy_file_speaks_for_all(tmp_path: Path) -> None:
    files = {
        "1" * 17: bytes(4440),
        "2" * 17: bytes(index_file(100, 200, 199)[:2000]),
        "3" * 17: os.urandom(30),
        "4" * 17: bytes(index_file(100, 200, 20)),
    }
    store = store_of(tmp_path, files)
    assert (store.index_slot_count, store.index_entry_count) == (100, 200)


def test_what_a_person_says_goes_before(tmp_path: Path) -> None:
    files = {"1" * 17: bytes(index_file(100, 200, 199))}
    store = store_of(tmp_path / "a", files, Settings(index_slot_count=50))
    assert (store.index_slot_count, store.index_entry_count) == (50, 210)
    store = store_of(tmp_path / "b", files, Settings(index_entry_count=9))
    assert (store.index_slot_count, store.index_entry_count) == (100, 9)


def test_a_store_without_an_index_has_no_counts(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = survey(DirectoryView(tmp_path))
    assert (store.index_slot_count, store.index_entry_count) == (None, None)


def test_a_file_that_went_away_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(index_file(100, 200, 30))
    files = [Entry("gone", EntryKind.FILE, 4440), Entry("there", EntryKind.FILE, 4440)]
    assert infer_slot_count(DirectoryView(tmp_path), files) == 100


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([4440], 200),
        ([4440, 4440, 840], 200),
        ([840, 4440], 200),
        ([4440, 4460], 200),
        ([4420, 4440], 200),
        ([4460, 4460, 4440], 201),
        ([4441], None),
        ([460], None),
        ([440], None),
        ([10], None),
    ],
)
def test_entries_come_from_the_length_that_most_files_have(sizes: list[int], count: int | None) -> None:
    assert infer_entry_count([Entry(str(i), EntryKind.FILE, size) for i, size in enumerate(sizes)], 100) == count
