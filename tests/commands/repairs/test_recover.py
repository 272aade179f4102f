"""`rmqtool recover`, `rebuild` and `forecast` from the command line: plan, consent, apply, take back, exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from rmqtool.commands.repairs import repair_plan
from rmqtool.repair.remaining import check_planned
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schema"
PLAN = json.loads((SCHEMAS / "plan.json").read_text("utf-8"))
FORECAST = json.loads((SCHEMAS / "forecast.json").read_text("utf-8"))
CRASHED = "5.5.0-crashed"
DAMAGED = "4.9.7-damage-flip-body-middle-file-abort"


def test_recover_and_undo(golden_copy: Unpacked) -> None:
    path = golden_copy(CRASHED)
    with assert_store_unchanged(path):
        code, plan = json_answer("recover", path, "--dry-run")
        assert code == 3
        assert schema_errors(plan, PLAN) == []
        assert all(
            after == {"starts": True, "lost": 0, "messages_without_log": 0} for after in plan["forecast_after"].values()
        )
    code, done = json_answer("recover", path, "--yes")
    assert code == 0
    assert schema_errors(done, PLAN) == []
    assert done["applied"] is True
    assert [step["after"] for step in done["steps"]] == [step["after"] for step in plan["steps"]]
    assert not (path / "abort").exists()
    assert rmqtool("verify", path).code == 0
    with assert_store_unchanged(path):
        assert rmqtool("recover", path, "--yes").code == 0
        assert rmqtool("recover", path, "--dry-run").code == 0


def test_undo_gives_the_crashed_store_back(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(CRASHED)
    shutil.rmtree(path / ".rmqtool", ignore_errors=True)
    known = {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}
    assert rmqtool("recover", path, "--yes").code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    now = {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}
    assert now == known


def test_nobody_to_ask_changes_nothing(golden_copy: Unpacked) -> None:
    path = golden_copy(CRASHED)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path)
    assert ran.code == 5
    assert "--yes" in ran.err


def test_a_loss_needs_its_own_consent(golden_copy: Unpacked) -> None:
    path = golden_copy(DAMAGED)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--cut-at-damage", "--yes")
    assert ran.code == 5
    assert "--accept-loss" in ran.err
    code, done = json_answer("recover", path, "--cut-at-damage", "--yes", "--accept-loss")
    assert code == 0
    assert done["loss"]["messages"] == 34
    assert rmqtool("forecast", path).code == 0


def test_damage_is_left_and_told(golden_copy: Unpacked) -> None:
    path = golden_copy(DAMAGED)
    with assert_store_unchanged(path):
        code, plan = json_answer("recover", path, "--yes")
    assert code == 3
    assert schema_errors(plan, PLAN) == []
    assert [found["id"] for found in plan["damage"]] == ["commitlog.body-crc-mismatch"]
    assert plan["forecast_after"]["4.9.8"]["lost"] == 34


def test_damage_far_from_the_end_is_seen_in_a_small_log(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-damage-zero-hole")
    with assert_store_unchanged(path):
        code, plan = json_answer("recover", path, "--dry-run")
        assert (code, plan["damage"], plan["steps"]) == (3, [], [])
        assert [(left["id"], "recover --full" in left["why"]) for left in plan["remaining"]] == [
            ("commitlog.hole", True)
        ]
        assert not any("only names and lengths" in note for note in plan["notes"])
        assert plan["next_step"]["command"] == f"rmqtool recover {path} --full"
        code, plan = json_answer("recover", path, "--dry-run", "--full")
        assert code == 3
        assert [found["id"] for found in plan["damage"]] == ["commitlog.hole"]


@pytest.fixture
def large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every log as too large to be read as a whole before the repair."""
    monkeypatch.setattr(repair_plan, "check_planned", partial(check_planned, read_again_max=0))


@pytest.mark.parametrize("name", ["5.5.0-many-files", "5.5.0-damage-torn-last-record-abort", "5.5.0-damage-zero-hole"])
@pytest.mark.usefixtures("large_log")
def test_a_part_of_a_large_log_is_never_called_ok(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    code, plan = json_answer("recover", path, "--yes")
    assert (code, plan["verdict"], plan["remaining"]) == (3, "not-fully-checked", [])
    assert [(files["path"], files["kind"]) for files in plan["not_looked_at"]] == [("commitlog", "commitlog")]
    assert any("only names and lengths were checked; --full checks all of it" in note for note in plan["notes"])
    assert plan["next_step"]["command"] == f"rmqtool verify {path}"
    screen = rmqtool("recover", path, "--dry-run")
    assert screen.code == 3
    assert screen.out.startswith("NOT FULLY CHECKED")
    assert "Nothing to do" not in screen.out
    if name != "5.5.0-damage-zero-hole":
        code, plan = json_answer("recover", path, "--yes", "--full")
        assert (code, plan["verdict"], plan["next_step"]["command"]) == (0, "ok", None)


@pytest.mark.parametrize("name", ["5.5.0-many-files", CRASHED])
def test_all_of_a_small_log_is_checked(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    code, plan = json_answer("recover", path, "--yes")
    assert (code, plan["verdict"], plan["not_looked_at"]) == (0, "ok", [])
    screen = rmqtool("recover", path, "--dry-run")
    assert (screen.code, screen.out.splitlines()[0]) == (0, "Nothing to do.")


def test_a_saved_plan_is_applied_to_the_same_store_only(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, saved = golden_copy(CRASHED), tmp_path / "plan.json"
    with assert_store_unchanged(path):
        assert rmqtool("recover", path, "--plan", saved).code == 3
    other = golden_copy("5.5.0-crashed-no-dispatch")
    with assert_store_unchanged(other):
        assert rmqtool("recover", other, "--apply", saved, "--yes").code == 5
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "new.json").write_text("{}")
    assert rmqtool("recover", path, "--apply", saved, "--yes").code == 5
    (path / "config" / "new.json").unlink()
    assert rmqtool("recover", path, "--apply", saved, "--yes").code == 0
    assert rmqtool("verify", path).code == 0


def test_a_store_in_use_is_refused(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(CRASHED)
    program = (
        "import sys; from pathlib import Path; from rmqtool.store.acquire_lock import StoreLock\n"
        "with StoreLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            with assert_store_unchanged(path):
                assert rmqtool("recover", path, "--yes").code == 5
                assert rmqtool("rebuild", path, "--yes").code == 5
        finally:
            assert holder.stdin is not None
            holder.stdin.close()


def test_a_copy_is_repaired_and_the_store_left(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, copy = golden_copy(CRASHED), tmp_path / "copy"
    with assert_store_unchanged(path):
        code, plan = json_answer("recover", path, "--output", copy, "--dry-run")
        assert (code, plan["next_step"]["command"]) == (3, f"rmqtool recover {path} --output {copy}")
        code, done = json_answer("recover", path, "--output", copy, "--yes")
    assert code == 0
    assert schema_errors(done, PLAN) == []
    assert done["output"] == str(copy)
    assert rmqtool("recover", copy, "--dry-run").code == 0
    assert rmqtool("verify", copy).code == 0


def test_the_step_after_a_repair_of_a_copy_is_about_the_copy(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, copy = golden_copy("5.5.0-damage-index-chain-loop"), tmp_path / "copy"
    shutil.rmtree(path / "consumequeue" / "TopicTest")
    done = json_answer("rebuild", path, "--queues", "--output", copy, "--yes")[1]
    command = done["next_step"]["command"]
    assert command is not None
    assert str(copy) in command
    assert str(path) not in command


def test_rebuild_brings_lost_queues_back(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy("5.5.0-clean-basic")
    shutil.rmtree(path / "consumequeue")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=600\n")
    code, done = json_answer("rebuild", path, "--queues", "--yes", "--broker-conf", conf)
    assert code == 0
    assert schema_errors(done, PLAN) == []
    known = golden("5.5.0-clean-basic") / "consumequeue"
    made = {found.relative_to(path / "consumequeue") for found in path.glob("consumequeue/*/*/*")}
    assert made == {found.relative_to(known) for found in known.glob("*/*/*") if found.is_file()}
    for place in made:
        assert (path / "consumequeue" / place).read_bytes() == (known / place).read_bytes()
    assert rmqtool("verify", path).code == 0


@pytest.mark.parametrize("version", ["all", "5.3.3"])
def test_forecast_keeps_its_schema(golden: Unpacked, version: str) -> None:
    for name in (CRASHED, DAMAGED, "5.5.0-damage-log-stray-file"):
        with assert_store_unchanged(golden(name)):
            code, found = json_answer("forecast", golden(name), "--broker-version", version)
        assert schema_errors(found, FORECAST) == []
        several = found["forecasts"]
        costs = any(not each["starts"] or each["lost"]["messages"] or each["unnoticed_damage"] for each in several)
        assert code == (0 if found["verdict"] == "ok" else 3)
        assert not (costs and found["verdict"] in ("ok", "not-fully-checked"))
        assert [each["broker_version"] for each in several] == (
            ["5.3.3"] if version != "all" else sorted(each["broker_version"] for each in several)
        )


@pytest.mark.parametrize("command", ["recover", "rebuild", "forecast"])
def test_no_store_is_an_error(command: str, tmp_path: Path) -> None:
    assert rmqtool(command, tmp_path).code == 4
    assert rmqtool(command, tmp_path, "--format", "csv").code == 2
