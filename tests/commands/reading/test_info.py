"""`info` says what the brokers themselves said, on every golden store, and never fails on what a disk may hold."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.store.view import DirectoryView, Entry
from tests import golden_stores
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_effects import load_effects
from tests.store_state import assert_store_unchanged

ROOT = Path(__file__).resolve().parents[3]
NAMES = golden_stores.names()
BROKER_NAMES = golden_stores.broker_names()
SCHEMA = json.loads((ROOT / "docs" / "schema" / "info.json").read_text("utf-8"))


def info(path: Path, *options: str) -> dict[str, Any]:
    """The JSON of `info`, which ends with 0. That it changes nothing is seen at the end, by the fixture `golden`."""
    ran = rmqtool("info", path, "--format", "json", *options)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    assert schema_errors(found, SCHEMA) == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_offsets_and_queues_are_those_of_the_broker(golden: Unpacked, name: str) -> None:
    path, manifest = golden(name), golden_stores.manifest(name)
    assert info(path)["shutdown"] == ("abnormal" if "abort" in manifest.files else "clean")
    for version, read in manifest.reads.items():
        if read.served is None or load_effects(name, version, path):
            continue
        found = info(path, "--broker-version", version)
        log = found["commitlog"]
        if log["file_count"]:
            assert log["min_offset"] == read.served.offsets["min"]
            assert (log["max_offset"], log["max_offset_is"]) == (read.served.offsets["max"], "exact")
        if found["consumequeue"]["kind"] != "file":
            continue
        queues = {
            (row["topic"], row["queue_id"]): (row["min_queue_offset"], row["max_queue_offset"])
            for row in found["consumequeue"]["queues"]
        }
        for queue in read.served.queues:
            if queue.known:
                assert queues.get((queue.topic, queue.queue_id), (0, 0)) == (queue.min, queue.max), version


def test_the_broker_is_compared_with_on_most_stores(golden: Unpacked) -> None:
    compared = [
        name
        for name in NAMES
        for version, read in golden_stores.manifest(name).reads.items()
        if read.served is not None and not load_effects(name, version, golden(name))
    ]
    assert len(compared) > 200


@pytest.mark.parametrize("name", BROKER_NAMES)
def test_stores_of_whole_brokers(golden: Unpacked, name: str) -> None:
    manifest = golden_stores.broker_manifest(name)
    found = info(golden(name), "--broker-version", manifest["broker_version"])
    assert found["shutdown"] == ("abnormal" if manifest["abort_present"] else "clean")
    log = found["commitlog"]
    served = manifest["served"].get("commitlog") or {}
    if log["file_count"] and log["max_offset_is"] == "exact" and served:
        assert log["max_offset"] == served["max_physical_offset"]
    assert log["file_count"] == sum(path.startswith("commitlog/") for path in manifest["files"])


@pytest.mark.parametrize("name", ["5.5.0-crashed", "4.9.7-clean-basic", *BROKER_NAMES[:2]])
def test_nothing_is_changed(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    with assert_store_unchanged(path):
        info(path)
        screen(path, 80)


@pytest.mark.parametrize("name", NAMES[::8])
def test_what_a_reader_of_json_gets_is_what_a_person_sees(golden: Unpacked, name: str) -> None:
    found = info(golden(name))
    for width in (80, 200):
        lines = screen(golden(name), width)
        text = " ".join(" ".join(lines).split())
        assert max(map(len, lines[1:])) <= max(width, len(found["next_step"]["command"] or "") + 12)
        assert {"abnormal": "STOPPED ABNORMALLY", "clean": "STOPPED CLEANLY"}[found["shutdown"]] in text
        assert str(found["commitlog"]["max_offset"] or "no files") in text


def screen(path: Path, width: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.commands.transcripts.WIDTH", width)
        ran = rmqtool("info", path)
    assert ran.code == 0
    return ran.out.splitlines()


def test_the_checkpoint_is_read(golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    fields = struct.unpack_from(">6q", (path / "checkpoint").read_bytes())
    assert tuple(info(path)["checkpoint"].values()) == fields


def test_the_version_is_inferred_within_its_line(golden: Unpacked) -> None:
    for name, line in (("5.5.0-clean-basic", "5.5."), ("4.9.7-clean-basic", "4.9.")):
        version = info(golden(name))["broker_version"]
        assert version["inferred"].startswith(line)
        assert version["evidence"]


def test_a_damaged_end_is_not_called_exact(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    end = info(path)["commitlog"]["max_offset"]
    segment = sorted((path / "commitlog").iterdir())[end // 65536]
    with segment.open("r+b") as file:
        file.seek(end % 65536)
        file.write(b"garbage that is no record")
    found = info(path)
    assert (found["commitlog"]["max_offset"], found["commitlog"]["max_offset_is"]) == (end, "at-least")
    assert found["next_step"]["command"] is not None


def test_a_torn_last_record_does_not_count(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    last = golden_stores.manifest("5.5.0-clean-basic").records[-1]
    segment = sorted((path / "commitlog").iterdir())[last.at // 65536]
    with segment.open("r+b") as file:
        file.seek(last.at % 65536 + 100)
        file.write(bytes(30))
    found = info(path)
    assert (found["commitlog"]["max_offset"], found["commitlog"]["max_offset_is"]) == (last.at, "at-least")
    assert any("torn" in problem for problem in found["problems"])


def test_a_log_without_queues_is_followed_from_its_last_file(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    end = info(path)["commitlog"]["max_offset"]
    subprocess.run(["rm", "-r", path / "consumequeue"], check=True)
    found = info(path)
    assert (found["commitlog"]["max_offset"], found["commitlog"]["max_offset_is"]) == (end, "exact")
    assert "no consume queues" in found["next_step"]["reason"]


def empty(path: Path) -> None:
    path.mkdir()


def plain_file(path: Path) -> None:
    path.write_bytes(b"x")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def other_product(path: Path) -> None:
    """The data directory of a database."""
    (path / "base" / "1").mkdir(parents=True)
    (path / "PG_VERSION").write_text("16\n")
    (path / "base" / "1" / "1259").write_bytes(bytes(8192))


def kafka(path: Path) -> None:
    (path / "orders-0").mkdir(parents=True)
    (path / "orders-0" / "00000000000000000000.log").write_bytes(bytes(100))


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


@pytest.mark.parametrize("make", [None, empty, plain_file, fifo, link_to_itself, other_product, kafka, unix_socket])
@pytest.mark.parametrize("command", ["info", "get"])
def test_what_is_no_store_is_one_clear_line(
    tmp_path: Path, make: Callable[[Path], None] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    if make is not None:
        make(Path("place"))
    question = ["--topic", "T", "--key", "k"] if command == "get" else []
    ran = rmqtool(command, "place", *question)
    assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
    assert ran.err.startswith("rmqtool: place: ")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    assert rmqtool("info", f"{tmp_path}/{'n' * 300}").code == 4


def test_a_directory_without_permission(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is made."""

    def refused(_view: DirectoryView, path: str) -> None:
        raise UnreadableError(f"{path}: permission denied")

    monkeypatch.setattr(DirectoryView, "list", refused)
    ran = rmqtool("info", golden("5.5.0-clean-basic"))
    assert (ran.code, ran.out) == (4, "")
    assert "permission denied" in ran.err


def test_files_that_may_not_be_read_are_problems_and_not_absent(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_view: DirectoryView, path: str) -> None:
        raise UnreadableError(f"{path}: permission denied")

    monkeypatch.setattr(DirectoryView, "open", refused)
    found = info(golden("5.5.0-clean-basic"))
    assert found["checkpoint"] is None
    assert "checkpoint: permission denied" in found["problems"]
    assert found["index"] == {"file_count": 5, "entry_count": None}
    assert {row["max_queue_offset"] for row in found["consumequeue"]["queues"]} == {None}
    assert found["commitlog"]["max_offset_is"] == "at-least"
    assert "STOPPED CLEANLY: but there are problems" in rmqtool("info", golden("5.5.0-clean-basic")).out


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue", "index"])
def test_a_directory_that_may_not_be_listed_is_not_called_empty(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    listed = DirectoryView.list

    def partly(view: DirectoryView, path: str) -> list[Entry]:
        if path == directory:
            raise UnreadableError(f"{path}: permission denied")
        return listed(view, path)

    monkeypatch.setattr(DirectoryView, "list", partly)
    path = golden("5.5.0-clean-basic")
    found = info(path)
    assert found[directory]["queue_count" if directory == "consumequeue" else "file_count"] is None
    assert found["commitlog"]["max_offset_is"] == "at-least"
    assert f"{directory}: permission denied" in found["problems"]
    assert "owner" in found["next_step"]["reason"]
    assert "cannot be read by this user" in rmqtool("info", path).out


@pytest.mark.parametrize("topic", ["\x1b[31mred", "a\nb", "t" * 255, "\u202eright", "..%2f..%2fetc"])
def test_hostile_topics_stay_on_their_line(golden_copy: Unpacked, topic: str) -> None:
    path = golden_copy("5.5.0-clean-basic")
    (path / "consumequeue" / "Audit").rename(path / "consumequeue" / topic)
    found = info(path)
    assert topic in {row["topic"] for row in found["consumequeue"]["queues"]}
    lines = screen(path, 80)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines[1:])) <= 12 + len(found["next_step"]["command"])


def test_truncated_zero_and_random_files(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    (path / "checkpoint").write_bytes(b"\0\1")
    for file in sorted((path / "index").iterdir())[:1]:
        file.write_bytes(bytes(range(256)) * 7)
    segments = sorted((path / "commitlog").iterdir())
    segments[-1].write_bytes(b"")
    segments[0].write_bytes(os.urandom(65536))
    queue = path / "consumequeue" / "Audit" / "0"
    for file in queue.iterdir():
        file.write_bytes(os.urandom(999))
    assert info(path)["shutdown"] == "clean"


def damage(path: Path, random: Random) -> None:
    """Cut, grow, overwrite or empty one file of a store somewhere."""
    file = random.choice([found for found in sorted(path.rglob("*")) if found.is_file()])
    size = file.stat().st_size
    with file.open("r+b") as opened:
        match random.randrange(4):
            case 0:
                opened.truncate(random.randrange(size + 1))
            case 1:
                opened.truncate(size + random.choice([1, 20, 65536, 1 << 33]))
            case _ if size:
                opened.seek(random.choice([random.randrange(size), random.randrange(min(size, 600))]))
                opened.write(random.choice([b"\x7f\xff\xff\xff" * 2, b"\xff" * 40, bytes(200), random.randbytes(300)]))


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_ends_no_command(golden_copy: Unpacked, seed: int) -> None:
    random = Random(seed)
    path = golden_copy(random.choice(["5.5.0-crashed", "4.9.7-clean-basic", "broker-5.5.0-batchcq", "4.9.7-cq-ext"]))
    for _ in range(random.choice([1, 3, 10])):
        damage(path, random)
    queues = info(path)["consumequeue"]["queues"] or [{"topic": "T", "queue_id": 0}]
    queue = random.choice(queues)
    place = ("get", path, "--topic", queue["topic"], "--queue-id", queue["queue_id"])
    for question in (
        (*place, "--queue-offset", random.choice([-1, 0, 20, 60]), "--count", 32, "--body", "text"),
        (*place, "--time", random.choice([0, 1795284967048, (1 << 63) - 1])),
        ("get", path, "--topic", queue["topic"], "--key", "order-21"),
        ("get", path, "--message-id", f"0A09080700002A9F{random.choice([0, 18694, (1 << 64) - 1]):016X}"),
    ):
        ran = rmqtool(*question)
        assert ran.code in {0, 3, 4, 6}, ran.err


@pytest.mark.parametrize(
    "place", ["commitlog/00000000000000000000", "checkpoint", "abort", "lock", "index/20240101000000000"]
)
def test_a_fifo_in_a_file_s_place_is_not_waited_for(golden_copy: Unpacked, place: str) -> None:
    path = golden_copy("5.5.0-crashed")
    (path / place).unlink(missing_ok=True)
    os.mkfifo(path / place)
    found = info(path)
    assert found["lock"] == ("unknown" if place == "lock" else "free")
    assert found["unknown_files"] == [place]


def test_a_broker_that_runs_is_seen(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-crashed")
    holder = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, path / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = json.loads(rmqtool("info", path, "--format", "json").out)
        text = rmqtool("info", path).out
        process.communicate(b"\n")
    assert (found["lock"], found["lock_owner_pid"], found["in_use"]) == ("held", process.pid, True)
    assert "IN USE" in text


def test_another_owner_is_warned_of(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    ran = rmqtool("info", golden("5.5.0-clean-basic"))
    assert "not to 54321 who runs this" in ran.err
    assert rmqtool("info", golden("5.5.0-clean-basic"), "--quiet").err == ""


def test_the_last_repair_and_whether_it_can_be_undone_are_named(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-damage-torn-last-record-abort")
    assert info(path)["last_repair"] is None
    assert rmqtool("recover", path, "--yes").code == 0
    repair = info(path)["last_repair"]
    assert (repair["number"], repair["command"], repair["can_undo"]) == (1, "recover", True)
    assert f"rmqtool undo {path} rolls it back" in " ".join(rmqtool("info", path).out.split())
    written_ns = (path / "checkpoint").stat().st_mtime_ns
    os.utime(path / "checkpoint", ns=(written_ns, written_ns + 1))
    assert info(path)["last_repair"]["can_undo"] is False
    assert "cannot be rolled back, because files have changed since" in " ".join(rmqtool("info", path).out.split())
    assert rmqtool("undo", path, "--yes").code == 5
    os.utime(path / "checkpoint", ns=(written_ns, written_ns))
    assert rmqtool("undo", path, "--yes").code == 0
    assert info(path)["last_repair"] is None


def test_a_broken_journal_is_a_problem_and_no_failure(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-damage-torn-last-record-abort")
    assert rmqtool("recover", path, "--yes").code == 0
    journal = path / ".rmqtool/undo/1/manifest"
    journal.write_text("no journal", "utf-8")
    found = info(path)
    assert found["last_repair"] is None
    assert any(".rmqtool" in problem for problem in found["problems"])


def test_the_first_line_names_what_was_seen(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    assert rmqtool("info", path).out.splitlines()[1].startswith("STOPPED CLEANLY: ")
    os.truncate(path / "checkpoint", 0)
    shown = info(path)
    assert shown["checkpoint"] is None
    assert shown["headline"] == "INCONSISTENT: checkpoint: 0 bytes long, too short for its times"
    screen = rmqtool("info", path).out
    assert screen.splitlines()[1].startswith("INCONSISTENT: checkpoint: ")
    assert "1970" not in screen


def test_a_torn_last_record_is_the_verdict_and_not_only_a_problem(golden_copy: Unpacked) -> None:
    shown = info(golden_copy("4.9.7-damage-torn-last-record"))
    assert "no problems" not in shown["headline"]
    assert any("is torn" in problem for problem in shown["problems"])
    assert "is torn" in shown["headline"]
