"""`patch` finds the structure at a position in each kind of file, and changes nothing but the named fields."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.record_crc import masked_crc
from rmqtool.repair.patch import Patch, PatchRequest, RangeCopy, plan_patch
from rmqtool.store.directory import survey
from rmqtool.store.source import read_range
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

CLEAN = "5.5.0-clean-basic"
LOG = "commitlog/00000000000000000000"
BODY_AT = 88
"""Where the body of a record begins whose hosts are IPv4."""


def plan(store: Path, request: PatchRequest) -> Patch:
    return plan_patch(survey(open_directory(store)), request)


def patched(store: Path, request: PatchRequest) -> bytes:
    """The file as the steps leave it."""
    content = bytearray((store / request.path).read_bytes())
    for step in plan(store, request).steps:
        with closing(step.content.open()) as source:
            piece = read_range(source, 0, step.length)
        content[step.file_position : step.file_position + step.length] = piece
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "glob", "at", "field", "value", "position", "raw"),
    [
        (CLEAN, LOG, 0, "queue_id", "3", 12, b"\0\0\0\3"),
        (CLEAN, LOG, 0, "magic", "0xDAA320AB", 4, b"\xda\xa3\x20\xab"),
        (CLEAN, LOG, 0, "born_host.address", "10.9.8.7", 48, bytes((10, 9, 8, 7))),
        (CLEAN, LOG, 0, "store_timestamp_ms", "-1", 56, b"\xff" * 8),
        (CLEAN, "consumequeue/Audit/0/*", 20, "record_size", "77", 28, b"\0\0\0\x4d"),
        (CLEAN, "index/*", 0, "next_entry_number", "9", 36, b"\0\0\0\x09"),
        (CLEAN, "index/*", 40, "newest_entry", "9", 40, b"\0\0\0\x09"),
        (CLEAN, "checkpoint", 0, "index_timestamp_ms", "5", 16, b"\0" * 7 + b"\5"),
        ("5.5.0-inner-batch", "batchconsumequeue/*/0/*", 46, "physical_offset", "1", 46, b"\0" * 7 + b"\1"),
        ("5.5.0-cq-ext", "consumequeue_ext/*/0/*", 0, "size", "20", 0, b"\0\x14"),
    ],
)
def test_one_field_changes_at_its_place(
    golden: Unpacked, name: str, glob: str, at: int, field: str, value: str, position: int, raw: bytes
) -> None:
    store = golden(name)
    path = str(min(store.glob(glob)).relative_to(store))
    before = (store / path).read_bytes()
    with assert_store_unchanged(store):
        after = patched(store, PatchRequest(path, at, ((field, value),)))
    assert after == before[:position] + raw + before[position + len(raw) :]


def test_the_files_of_the_timer_have_fields_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(RECIPES["timer"], store, "5.5.0")
    for file, field in (
        ("timerwheel", "first_position"),
        ("timerlog/00000000000000000000", "magic"),
        ("config/timercheck", "queue_offset"),
    ):
        before, after = (store / file).read_bytes(), patched(store, PatchRequest(file, 0, ((field, "7"),)))
        assert before != after, file


def test_each_field_of_a_record_can_be_set_and_set_back(golden: Unpacked) -> None:
    store, generator = golden(CLEAN), random.Random(19)
    content = (store / LOG).read_bytes()
    fields = plan(store, PatchRequest(LOG, 0, fix_crc=True)).before
    for field in fields:
        value = "0x" + generator.randbytes(field.length).hex()
        if field.length == 0:
            continue
        after = patched(store, PatchRequest(LOG, 0, ((field.name, value),)))
        start, end = field.position, field.position + field.length
        assert after[start:end] == bytes.fromhex(value[2:]), field.name
        assert (after[:start], after[end:]) == (content[:start], content[end:]), field.name


def test_a_new_checksum_is_that_of_the_new_body(golden: Unpacked) -> None:
    store = golden(CLEAN)
    body = next(part for part in plan(store, PatchRequest(LOG, 0, fix_crc=True)).before if part.name == "body")
    value = "0x" + bytes(reversed(body.content)).hex()
    after = patched(store, PatchRequest(LOG, 0, (("body", value),), fix_crc=True))
    assert int.from_bytes(after[8:12], "big") == masked_crc(body.content[::-1])


def test_a_message_that_becomes_unreadable_counts_as_lost(golden: Unpacked) -> None:
    store = golden(CLEAN)
    assert plan(store, PatchRequest(LOG, 0, (("queue_id", "3"),))).loss.messages == 0
    loss = plan(store, PatchRequest(LOG, 0, (("body_crc", "1"),))).loss
    assert (loss.messages, loss.by_topic) == (1, {"Audit": 1})


def test_a_range_comes_from_another_file(golden: Unpacked, tmp_path: Path) -> None:
    store, source = golden(CLEAN), tmp_path / "source"
    source.write_bytes(bytes(range(200)))
    before = (store / LOG).read_bytes()
    after = patched(store, PatchRequest(LOG, 100, copy=RangeCopy(source, 50, 30)))
    assert after == before[:100] + bytes(range(50, 80)) + before[130:]


@pytest.mark.parametrize(
    ("path", "request_options", "text"),
    [
        (LOG, {"values": (("queue", "3"),)}, "message-v1 has size, magic"),
        (LOG, {"values": (("quue_id", "3"),)}, "; did you mean queue_id"),
        (LOG, {"values": (("queue_id", "x"),)}, "not a number"),
        (LOG, {"values": (("queue_id", str(1 << 40)),)}, "does not fit into 4 bytes"),
        (LOG, {"values": (("topic", "Longer"),)}, "this would be 6"),
        (LOG, {"values": (("born_host.address", "::1"),)}, "this would be 16"),
        (LOG, {"copy": RangeCopy(Path("/dev/null/x"), 0, 0)}, "--length"),
        ("checkpoint", {"fix_crc": True}, "no checksum"),
    ],
)
def test_what_does_not_fit_is_refused(
    golden: Unpacked, path: str, request_options: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        plan(golden(CLEAN), PatchRequest(path, 0, **request_options))  # type: ignore[arg-type]


def test_a_file_without_structures_is_named_once(golden: Unpacked) -> None:
    store = golden("5.5.0-crashed")
    with pytest.raises(UnsupportedError, match=r"^abort: no structure"):
        plan(store, PatchRequest("abort", 0, (("size", "1"),)))


def test_a_position_inside_a_unit_names_its_neighbors(golden: Unpacked) -> None:
    store = golden(CLEAN)
    path = str(min(store.glob("consumequeue/Audit/0/*")).relative_to(store))
    with pytest.raises(UsageError, match="begins at 20 and the next one at 40"):
        plan(store, PatchRequest(path, 21, (("record_size", "1"),)))


@pytest.mark.parametrize(("at", "inside"), [(0, False), (100, True), (1295, True), (1296, False)])
def test_a_position_inside_a_message_names_the_message(golden: Unpacked, at: int, inside: bool) -> None:
    store = golden(CLEAN)
    assert int.from_bytes((store / LOG).read_bytes()[:4], "big") == 1296, "the first record ends there"
    (step,) = plan(store, PatchRequest(LOG, at, (("queue_id", "7"),))).steps
    tail = ", inside the message of Audit at 0" if inside else ""
    assert step.why == f"patch of message-v1 at {at}{tail}"


def test_text_files_are_left_to_editors(golden_copy: Unpacked) -> None:
    store = golden_copy(CLEAN)
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="editor"):
        plan(store, PatchRequest("config/topics.json", 0, (("a", "1"),)))


def test_damaged_headers_give_what_can_be_shown(golden_copy: Unpacked) -> None:
    store, generator = golden_copy(CLEAN), random.Random(20)
    file = store / LOG
    content = file.read_bytes()
    for _ in range(200):
        damaged = bytearray(content)
        at = generator.randrange(BODY_AT)
        damaged[at : at + 4] = generator.randbytes(4)
        file.write_bytes(damaged[: len(content)])
        shown = plan(store, PatchRequest(LOG, 0, (("queue_id", "3"),)))
        assert sum(part.length for part in shown.before) <= len(content)
