"""Random damage of every file that answers come from: an answer or an error of ours, at once, and never a traceback."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.version_evidence import infer_version
from rmqtool.engine.rules.versions import SUPPORTED, rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_BASE
from rmqtool.formats.index import key_hash, key_text
from tests.engine.memory_view import (
    batch_queue_file,
    index_file,
    log_file,
    made_store,
    queue_file,
    record,
    segment_name,
)

LOG_FILE = 1000
HASH = key_hash(key_text("T", "k"))


def sound_files() -> dict[str, bytes]:
    first = record(0, properties={"KEYS": "k", "TAGS": "a"})
    second = record(len(first), queue_offset=1, properties={"KEYS": "k"}, store_timestamp_ms=1_000_500)
    size = len(first)
    return {
        f"commitlog/{segment_name(0)}": log_file([first, second], LOG_FILE),
        f"consumequeue/T/0/{segment_name(0)}": queue_file(
            [(0, size, EXTENSION_ADDRESS_BASE), (size, len(second), 97), (size, len(second), 97)], 60
        ),
        f"consumequeue/T/0/{segment_name(60)}": queue_file([(size, len(second), 97)], 60),
        f"consumequeue_ext/T/0/{segment_name(0)}": struct.pack(">hqqh", 20, 97, 1_000_000, 0) + bytes(44),
        f"batchconsumequeue/B/0/{segment_name(0)}": batch_queue_file(
            [(0, size, 97, 1_000_000, 0, 4), (size, len(second), 97, 1_000_500, 4, 2)], 138
        ),
        "index/20260101000000000": index_file(
            [(HASH, 0, 0, 0), (HASH, size, 0, 1), (HASH + 5, 0, 0, 2)],
            {HASH % 5: 3},
            slot_count=5,
            entry_count=10,
            begin_ms=1_000_000,
            end_ms=1_000_500,
        ),
        "checkpoint": bytes(4096),
        "abort": b"123",
    }


SOUND = sound_files()
QUESTIONS: list[Callable[[Reader], object]] = [
    *(lambda reader, at=at, name=name: _pulled(reader, name, at) for name in ("T", "B") for at in (-1, 0, 1, 3, 5)),
    *(lambda reader, at=at: _record_of(reader, at) for at in (0, 96, 1000)),
    *(
        lambda reader, time=time, name=name, boundary=boundary: reader.offset_in_queue_by_time(name, 0, time, boundary)
        for name in ("T", "B")
        for time in (0, 1_000_000, 1_000_250, 1 << 60)
        for boundary in Boundary
    ),
    lambda reader: [message.record for message in reader.query_message("T", "k").messages],
    lambda reader: reader.query_message("T", "k", 5, 1_000_100, 1_000_400),
]


def _pulled(reader: Reader, topic: str, queue_offset: int) -> object:
    found = reader.get_message(topic, 0, queue_offset, 32, "a || b")
    return [(message.record, message.range(0, 100)) for message in found.messages]


def _record_of(reader: Reader, physical_offset: int) -> object:
    message = reader.message_at(physical_offset)
    return message and message.record and (message.record.body(1000), message.record.body_crc_ok)


def ask_everything(files: dict[str, bytes], version: str) -> None:
    try:
        store = made_store(
            files,
            commitlog_file_size=LOG_FILE,
            consumequeue_file_size=60,
            extension_file_size=64,
            batch_file_size=138,
            index_slot_count=5,
            index_entry_count=10,
        )
        infer_version(store)
        reader = open_reader(store, rules_for(version))
    except RmqtoolError:
        return
    lines: list[str] = []
    with reader:
        for question in QUESTIONS:
            try:
                question(reader)
            except RmqtoolError as error:
                lines.append(str(error))
    assert not any("\n" in line for line in lines)


def test_the_sound_store_answers() -> None:
    store = made_store(SOUND, commitlog_file_size=LOG_FILE, consumequeue_file_size=60, index_slot_count=5)
    with open_reader(store, rules_for("5.5.1")) as reader:
        assert len(reader.get_message("T", 0, 0).messages) == 3
        assert reader.query_message("T", "k").carries_key == (True, True)


def test_every_byte_changed_in_turn() -> None:
    for path, content in SOUND.items():
        step = 1 if len(content) < 400 else 3
        for at in range(0, min(len(content), 400), step):
            changed = content[:at] + bytes((content[at] ^ 0xFF,)) + content[at + 1 :]
            ask_everything({**SOUND, path: changed}, "5.5.1")


def test_every_file_cut_at_every_length() -> None:
    for path, content in SOUND.items():
        for length in range(min(len(content), 300)):
            ask_everything({**SOUND, path: content[:length]}, "5.5.1")


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(SUPPORTED))
def test_random_content(data: st.DataObject, version: str) -> None:
    path = data.draw(st.sampled_from(sorted(SOUND)))
    junk = data.draw(st.binary(max_size=400))
    at = data.draw(st.integers(0, len(SOUND[path])))
    changed = SOUND[path][:at] + junk + SOUND[path][at + len(junk) :]
    ask_everything({**SOUND, path: changed[: len(SOUND[path])]}, version)
