"""`append` and names: of files of the log other than brokers give them, and of topics that no broker takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.broker.files import snapshot
from tests.commands.transcripts import rmqtool
from tests.commands.writing.test_append import create, rows


@pytest.mark.parametrize("name", ["0", "65536", f"{0:019d}"])
def test_a_log_file_whose_name_has_fewer_digits_is_refused(tmp_path: Path, name: str) -> None:
    """Brokers load such a file: the next record belongs after its records, and in no new file at offset 0."""
    store = tmp_path / "s"
    create(store, "--body", "one")
    file = store / "commitlog" / f"{0:020d}"
    if int(name):
        shutil.copy(file, file.with_name(name))
    else:
        file.rename(file.with_name(name))
    before = snapshot(store)
    ran = rmqtool("append", store, "--topic", "orders", "--body", "two")
    assert ran.code == 5
    assert f"commitlog/{name}: " in ran.err
    assert snapshot(store) == before


@pytest.mark.parametrize("letter", [b"\0", b"/"])
def test_a_last_record_that_no_queue_can_hold_waits_for_no_repair(tmp_path: Path, letter: bytes) -> None:
    """Its topic is no name that a directory can have: no broker and no repair gives it a queue."""
    store = tmp_path / "s"
    create(store, "--body", "one")
    (log,) = (store / "commitlog").iterdir()
    ran = rmqtool("append", store, "--topic", "other", "--body", "two")
    assert ran.code == 0
    content = log.read_bytes()
    log.write_bytes(content.replace(b"other", b"oth" + letter + b"r"))
    (units,) = (store / "consumequeue/other/0").iterdir()
    units.write_bytes(bytes(units.stat().st_size))
    assert rmqtool("append", store, "--topic", "orders", "--body", "three").code == 0
    last = rows(rmqtool("dump", store, "--format", "jsonl"))[-1]
    assert (last["topic"], last["queue_offset"]) == ("orders", 1)
    (queue,) = (store / "consumequeue/orders/0").iterdir()
    assert int.from_bytes(queue.read_bytes()[20:28]) == last["physical_offset"]


def test_quiet_shows_only_messages_that_were_refused(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(
        '{"topic": "orders", "body": "a"}\n{"topic": "%s"}\n{"topic": "orders", "body": "b"}\n' % ("t" * 300)
    )
    shown = rmqtool("append", tmp_path / "s", "--create", "--from", lines)
    quiet = rmqtool("append", tmp_path / "s2", "--create", "--from", lines, "--quiet")
    assert shown.code == quiet.code == 3
    assert len(rows(rmqtool("dump", tmp_path / "s2", "--format", "jsonl"))) == 2
    assert shown.out.count("PUT_OK") == 2
    assert "PUT_OK" not in quiet.out
    assert "MESSAGE_ILLEGAL" in quiet.out
