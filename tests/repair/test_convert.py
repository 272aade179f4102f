"""`convert --from-dledger`: a plain store with every message; the store itself is not changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests import golden_stores
from tests.commands.transcripts import Ran, json_answer, rmqtool
from tests.conftest import Unpacked
from tests.repair.dledger_stores import as_dledger
from tests.store_state import store_state

GOLDEN = ("broker-4.9.7-dledger", "broker-5.3.3-dledger")
PLAIN = (
    "4.9.7-clean-basic",
    "5.5.0-many-files",
    "5.5.0-transaction",
    "5.5.0-expired-head",
    "5.5.0-expired-head-and-queues",
)
LAST = "dledger-n0/data/00000000000000262144"


def converted(path: Path, output: Path, *options: str) -> Ran:
    return rmqtool("convert", path, "--from-dledger", "--output", output, "--yes", *options)


def rows(path: Path, *options: str) -> list[dict[str, object]]:
    """What `dump` shows, but for blanks."""
    lines = rmqtool("dump", path, "--format", "jsonl", *options).out.splitlines()
    return [row for row in map(json.loads, lines) if row["type"] != "blank"]


@pytest.mark.parametrize("name", GOLDEN)
def test_each_message_keeps_its_queue_offset_and_the_store_its_bytes(
    golden: Unpacked, tmp_path: Path, name: str
) -> None:
    path, output = golden(name), tmp_path / "plain"
    before = store_state(path)
    ran = converted(path, output)
    assert (ran.code, store_state(path)) == (0, before), ran.err
    assert rmqtool("verify", output).code == 0
    names = ("topic", "queue_id", "queue_offset", "unique_key", "body_crc_ok")
    logged = {tuple(row[name] for name in names) for row in rows(output)}
    assert logged == {
        (sent["topic"], sent["queue"], sent["queue_offset"], sent["msg_id"], True)
        for sent in golden_stores.broker_manifest(name)["acknowledged"]
    }
    assert not list(output.glob("dledger-*/data/*"))
    for config in (path / "config").iterdir():
        assert (output / "config" / config.name).read_bytes() == config.read_bytes()


@pytest.mark.parametrize("name", PLAIN)
def test_there_and_back_the_log_is_what_it_was(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path, output = golden_copy(name), tmp_path / "plain"
    log = {file.name: file.read_bytes() for file in (path / "commitlog").iterdir()}
    ends = {queue.relative_to(path).parts[1:3] for queue in path.glob("consumequeue/*/*/*")}
    ran = converted(as_dledger(path), output, "--broker-version", name.partition("-")[0])
    assert ran.code == 0, ran.err
    assert {file.name: file.read_bytes() for file in (output / "commitlog").iterdir()} == log
    assert {queue.relative_to(output).parts[1:3] for queue in output.glob("consumequeue/*/*/*")} == ends


def test_a_torn_last_entry_is_left_out_and_damage_is_refused(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(GOLDEN[1])
    entries = [row for row in rows(path / LAST) if row["type"] == "dledger-entry"]
    last = max(int(str(row["position"])) + int(str(row["size"])) for row in entries)
    with (path / LAST).open("r+b") as log:
        log.seek(last - 262144)
        log.write(b"\0\0\0\1\0\0\x02")  # the header of one more entry, torn
    ran = converted(path, tmp_path / "torn")
    assert (ran.code, "bytes after the last entry" in ran.out) == (0, True), ran.err
    assert len(rows(tmp_path / "torn")) == 500
    with (path / LAST).open("r+b") as log:
        log.seek(200)
        log.write(b"x" * 300)
    ran = converted(path, tmp_path / "damaged")
    assert (ran.code, "dledger.bad-entry" in ran.err, (tmp_path / "damaged").exists()) == (4, True, False)


def test_entries_that_the_group_knows_and_the_log_lacks_are_no_torn_end(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(GOLDEN[0])
    with (path / LAST).open("r+b") as log:
        log.truncate(1000)
        log.truncate(262144)
    ran = converted(path, tmp_path / "plain")
    assert (ran.code, "dledger." in ran.err, (tmp_path / "plain").exists()) == (4, True, False)


@pytest.mark.parametrize(("number", "size"), [(0, 1 << 33), (1, 1 << 20), (-1, 1 << 20), (0, 128 << 10)])
def test_files_of_several_sizes_are_refused(golden_copy: Unpacked, tmp_path: Path, number: int, size: int) -> None:
    path = golden_copy(GOLDEN[1])
    os.truncate(sorted((path / "dledger-n0" / "data").iterdir())[number], size)
    ran = converted(path, tmp_path / "plain")
    assert (ran.code, (tmp_path / "plain").exists()) == (4, False), ran.err


def test_what_cannot_be_converted_is_refused(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden(GOLDEN[1])
    assert (ran := rmqtool("convert", path, "--from-dledger", "--yes")).code == 2, ran.err
    assert "--output" in ran.err
    assert rmqtool("convert", path, "--yes").code == 2
    assert rmqtool("convert", path, "--from-dledger", "--queues", "file", "--output", tmp_path / "a").code == 2
    plain = golden("4.9.7-clean-basic")
    assert (ran := converted(plain, tmp_path / "b")).code == 2, ran.err
    assert "no log of DLedger" in ran.err
    mixed = golden_copy(GOLDEN[1])
    shutil.copytree(plain / "commitlog", mixed / "commitlog")
    assert (ran := converted(mixed, tmp_path / "c")).code == 4, ran.err
    assert "a plain commit log" in ran.err


def test_the_timer_is_built_again_where_it_leads_to_the_old_log(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = as_dledger(golden_copy("broker-5.5.0-timer"))
    ran = converted(path, tmp_path / "plain")
    assert (ran.code, "timers that wait: 41" in " ".join(ran.out.split())) == (0, True), ran.err
    assert rmqtool("verify", tmp_path / "plain").code == 0


def test_no_message_moves_up_for_one_whose_topic_is_wrong(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(GOLDEN[1])
    data = path / "dledger-n0/data/00000000000000000000"
    (record, *_) = [row for row in rows(data) if (row.get("topic"), row.get("queue_offset")) == ("orders", 7)]
    content = data.read_bytes()
    at = content.index(b"orders", int(str(record["physical_offset"])))
    data.write_bytes(content[:at] + b"\x7f" + content[at + 1 :])
    floor = json_answer("convert", path, "--from-dledger", "--output", tmp_path / "plain", "--dry-run")[1]["floor"]
    assert (floor["taken_away"], floor["moved"]) == (0, 0)
    assert converted(path, tmp_path / "plain").code == 3  # the record is as wrong as before


def test_topics_with_queues_are_there_though_the_configuration_is_lost(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, output = golden_copy(GOLDEN[1]), tmp_path / "plain"
    for file in (path / "config").glob("topics.json*"):
        file.write_text("{")
    (path / "dledger-n0/data/00000000000000000000").unlink()
    expired = path / "consumequeue/old/0/00000000000000000000"
    expired.parent.mkdir(parents=True)
    expired.write_bytes((48).to_bytes(8, "big") + (500).to_bytes(4, "big") + bytes(19988))
    ran = converted(path, output)
    assert {queue.name for queue in (output / "consumequeue").iterdir()} == {"old", "orders", "payments", "audit-log"}
    assert "topic.may-be-deleted" not in ran.out
