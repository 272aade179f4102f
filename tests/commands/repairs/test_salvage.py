"""`rmqtool salvage` from the command line: plan, apply, copy, lost+found, export, take back, exit codes."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

PLAN = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "plan.json").read_text("utf-8"))
HOLE = "5.5.0-damage-zero-hole-abort"
FLIP = "4.9.7-damage-flip-body-middle-file-abort"


def files_of(root: Path) -> dict[str, bytes]:
    return {str(place.relative_to(root)): place.read_bytes() for place in sorted(root.rglob("*")) if place.is_file()}


def test_planned_applied_and_taken_back(golden_copy: Unpacked) -> None:
    path = golden_copy(HOLE)
    before = files_of(path)
    with assert_store_unchanged(path):
        code, plan = json_answer("salvage", path, "--dry-run")
    assert code == 3
    assert schema_errors(plan, PLAN) == []
    assert plan["lost_for_good"]["messages"] == sum(plan["lost_for_good"]["by_topic"].values()) == 4
    assert sum(queue["count"] for queue in plan["lost_for_good"]["queues"]) == 4
    assert plan["loss"]["messages"] == 0
    code, done = json_answer("salvage", path, "--yes")
    assert (code, done["applied"]) == (0, True)
    assert rmqtool("verify", path).code == 0
    assert rmqtool("forecast", path).code == 0
    with assert_store_unchanged(path):
        assert rmqtool("salvage", path, "--yes").code == 0
        assert rmqtool("recover", path, "--dry-run").code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert files_of(path) == before


def test_into_a_copy(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(HOLE)
    with assert_store_unchanged(path):
        code, done = json_answer("salvage", path, "--output", tmp_path / "copy", "--yes", "--lost-found")
    assert (code, done["output"]) == (0, str(tmp_path / "copy"))
    assert rmqtool("verify", tmp_path / "copy").code == 0
    (saved,) = (tmp_path / "copy/.rmqtool/lost+found").glob("*.bin")
    start, end = map(int, saved.stem.split("-"))
    assert saved.read_bytes() == (path / "commitlog/00000000000000196608").read_bytes()[start - 196_608 : end - 196_608]


def test_a_saved_plan_is_applied_to_the_same_store_only(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, saved = golden_copy(HOLE), tmp_path / "plan.json"
    with assert_store_unchanged(path):
        assert rmqtool("salvage", path, "--plan", saved).code == 3
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "new.json").write_text("{}")
    with assert_store_unchanged(path):
        assert rmqtool("salvage", path, "--apply", saved, "--yes").code == 5
    (path / "config" / "new.json").unlink()
    with assert_store_unchanged(path):  # with other options it is another plan
        assert rmqtool("salvage", path, "--apply", saved, "--yes", "--show-lost").code == 5
    assert rmqtool("salvage", path, "--apply", saved, "--yes").code == 0
    assert rmqtool("verify", path).code == 0


def test_an_export_to_a_full_disk_leaves_nothing(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rmqtool.commands.repairs.salvage.JsonWriter.write", full)
    ran = rmqtool("salvage", golden(HOLE), "--export", tmp_path / "new" / "out")
    assert (ran.code, ran.err) == (4, f"rmqtool: {tmp_path}/new/out/messages.jsonl: no space left on device\n")
    assert list(tmp_path.glob("new/**")) == []


def test_what_was_damaged_is_kept_apart(golden_copy: Unpacked) -> None:
    path = golden_copy(FLIP)
    log = {place.name: place.read_bytes() for place in (path / "commitlog").iterdir()}
    assert rmqtool("salvage", path, "--yes", "--lost-found").code == 0
    (saved,) = (path / ".rmqtool/lost+found").glob("*.bin")
    described = json.loads(saved.with_suffix(".json").read_text("utf-8"))
    name, position = described["file"].rpartition("/")[2], described["file_position"]
    assert saved.read_bytes() == log[name][position : position + saved.stat().st_size]
    (record,) = described["records"]
    assert (record["topic"], record["queue_id"], record["queue_offset"]) == ("TopicTest", 0, 24)
    assert record["body_length"] > 0


def test_one_flipped_bit_with_consent(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(FLIP)
    assert rmqtool("salvage", path, "--fix-bits", "--yes").code == 0
    whole = golden("4.9.7-damage-base")
    for place in sorted((whole / "commitlog").iterdir()):
        assert (path / "commitlog" / place.name).read_bytes() == place.read_bytes()


TOMBSTONES, CORRECTED = "replace unreadable records with tombstones", "correct damaged records"


@pytest.mark.parametrize(
    ("options", "why", "lost"),
    [((), TOMBSTONES, 1), (("--fix-bits",), CORRECTED, 0), (("--as-is",), CORRECTED, 0)],
)
def test_tombstones_are_named_only_where_some_are_written(
    golden_copy: Unpacked, options: tuple[str, ...], why: str, lost: int
) -> None:
    path = golden_copy(FLIP)
    _, plan = json_answer("salvage", path, *options, "--dry-run")
    assert {step["why"] for step in plan["steps"] if step["file"].startswith("commitlog/")} == {why}
    screen = rmqtool("salvage", path, *options, "--dry-run").out
    assert (TOMBSTONES in screen, "1 unreadable message will be lost" in screen) == (bool(lost), bool(lost))
    code, done = json_answer("salvage", path, *options, "--yes")
    assert (code, done["lost_for_good"]["messages"]) == (0, lost)
    assert rmqtool("dump", path, "--format", "jsonl").out.count('"tags": "RMQTOOL_LOST"') == lost


def test_what_stands_in_no_queue_is_bridged_without_a_tombstone(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-transaction")
    rows = [json.loads(line) for line in rmqtool("dump", path, "--format", "jsonl").out.splitlines()]
    ended = next(row for row in rows if row.get("transaction") == "rollback")
    with (path / "commitlog/00000000000000000000").open("r+b") as log:
        log.seek(ended["physical_offset"])
        log.write(bytes(ended["size"]))
    _, plan = json_answer("salvage", path, "--dry-run")
    assert (plan["lost_for_good"]["messages"], plan["unknown_bytes"]) == (0, ended["size"])
    assert [step["why"] for step in plan["steps"]] == ["bridge damage in the commit log"]


def test_a_replica_gives_what_is_lost(golden: Unpacked, golden_copy: Unpacked) -> None:
    path, whole = golden_copy(HOLE), golden("5.5.0-damage-base")
    code, done = json_answer("salvage", path, "--from", whole, "--yes")
    assert code == 0
    assert done["lost_for_good"]["messages"] == 0
    assert done["donated_bytes"] > 0
    for place in sorted((whole / "commitlog").iterdir()):
        assert (path / "commitlog" / place.name).read_bytes() == place.read_bytes()


def test_what_is_exported_is_what_append_takes(golden: Unpacked, tmp_path: Path) -> None:
    with assert_store_unchanged(golden(HOLE)):
        assert rmqtool("salvage", golden(HOLE), "--export", tmp_path / "out").code == 3
    lines = (tmp_path / "out/messages.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 196
    assert not any("RMQTOOL_LOST" in line for line in lines)
    ran = rmqtool(
        "append", tmp_path / "fresh", "--create", "--broker-version", "5.5.0", "--from", tmp_path / "out/messages.jsonl"
    )
    assert ran.code == 0, ran.err
    assert rmqtool("verify", tmp_path / "fresh").code == 0


@pytest.mark.parametrize("how", [["--yes"], ["--apply", "plan.json", "--yes"], ["--output", "copy", "--yes"]])
def test_a_store_in_use_is_refused(golden_copy: Unpacked, tmp_path: Path, how: list[str]) -> None:
    path = golden_copy(HOLE)
    program = (
        "import sys; from pathlib import Path; from rmqtool.store.acquire_lock import StoreLock\n"
        "with StoreLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with assert_store_unchanged(path / "commitlog"):
            placed = [str(tmp_path / word) if word in ("plan.json", "copy") else word for word in how]
            assert rmqtool("salvage", path, *placed).code == 5
        holder.communicate(b"")


def test_a_file_under_a_wrong_name_is_named_with_the_command_that_gives_it_the_right_one(
    golden_copy: Unpacked,
) -> None:
    path = golden_copy("5.5.0-many-files")
    first, second = sorted((path / "commitlog").iterdir())[:2]
    stray = second.rename(first.with_name("00000000000000000001"))
    with assert_store_unchanged(path):
        code, plan = json_answer("salvage", path, "--yes")
        screen = rmqtool("salvage", path, "--yes")
    assert (code, plan["needs_decision"], plan["steps"]) == (3, True, [])
    assert schema_errors(plan, PLAN) == []
    assert plan["next_step"]["reason"].startswith(f"commitlog/{stray.name} is not part of the commit log")
    command = plan["next_step"]["command"]
    assert "a person must decide about" in screen.out
    assert command in screen.out.splitlines()
    subprocess.run(shlex.split(command), check=True)
    assert second.exists()
    assert rmqtool("verify", path).code == 0


def test_a_copy_under_a_wrong_name_is_to_be_moved_out_of_the_store(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-many-files")
    first, second = sorted((path / "commitlog").iterdir())[:2]
    shutil.copy2(second, first.with_name("00000000000000000001"))
    code, plan = json_answer("recover", path, "--yes")
    assert (code, plan["needs_decision"], plan["next_step"]["command"]) == (3, True, None)
    assert "move it out of the store" in plan["next_step"]["reason"]
    assert f"where commitlog/{second.name} is" in plan["damage"][0]["message"]


def test_dump_names_the_tombstones_of_a_repair(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-damage-zero-hole-abort")
    assert rmqtool("salvage", store, "--yes").code == 0
    ran = rmqtool("dump", store, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    tombstones = [row for row in rows if row["finding"] == "commitlog.tombstone"]
    assert ran.code == 0
    assert len(tombstones) == 4
    assert {row["type"] for row in tombstones} == {"message"}
    assert not any(row["finding"] for row in rows if row not in tombstones)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_refused_repair_prints_its_plan(golden: Unpacked, form: str) -> None:
    store = golden("5.5.0-crashed")
    planned = json.loads(rmqtool("recover", store, "--dry-run", "--format", "json").out)
    for command in (["recover", store], ["recover", store, "--format", form]):
        ran = rmqtool(*command)
        assert ran.code == 5
        assert "confirmation required" in ran.err
        if "--format" in command:
            plan = json.loads(ran.out)
            assert plan["applied"] is False
            assert plan["refused"] in ran.err
            assert plan["steps"] == planned["steps"]
            assert schema_errors(plan, PLAN) == []
