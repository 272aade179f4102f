"""Log files that are gone or cut, and sizes that no file shows: never guessed, never paid for by a queue."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.messages import Messages
from rmqtool.commands.repairs.repair_plan import plan_with_sizes
from rmqtool.errors import UnknownSizeError
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import Store, survey
from rmqtool.store.sizes import LogFileSize
from rmqtool.store.view import open_directory
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.report.test_progress import Terminal
from tests.store_state import assert_store_unchanged

DEFAULT = "5.5.0-default-size"
SMALL = "5.5.0-crashed-no-dispatch"
LONE = "5.5.0-keys-index"
GIB = 1 << 30
LOG = "commitlog/00000000000000000000"
SIZES = ("--queue-file-size", 600, "--index-slots", 16, "--index-entries", 60)


def asked(*arguments: object) -> tuple[Ran, dict[str, Any]]:
    ran = rmqtool(*arguments, "--format", "json")
    return ran, json.loads(ran.out) if ran.out else {}


def findings_of(path: Path, *options: object) -> set[str]:
    """Ids of errors and warnings."""
    found = asked("verify", path, *options)[1]["findings"]
    return {each["id"] for each in found if each["severity"] != "note"}


def derived(path: Path) -> dict[str, bytes]:
    """Queue files by their paths, index files by their order."""
    queues = {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.glob("consumequeue/*/*/*"))}
    files = sorted((path / "index").iterdir()) if (path / "index").is_dir() else []
    return queues | {f"index {number}": file.read_bytes() for number, file in enumerate(files)}


@pytest.mark.parametrize("length", [500_000_000, GIB - 1, GIB + 4096, 100_000])
def test_a_lone_log_file_of_an_unlikely_length_is_brought_to_the_default(golden_copy: Unpacked, length: int) -> None:
    path = golden_copy(DEFAULT)
    os.truncate(path / LOG, length)
    assert findings_of(path) == {"commitlog.wrong-file-size"}
    ran, said = asked("forecast", path)
    assert (ran.code, said["forecasts"][0]["starts"]) == (3, False)
    assert rmqtool("recover", path, "--yes").code == 0
    assert (path / LOG).stat().st_size == GIB
    assert rmqtool("verify", path).code == 0
    assert rmqtool("forecast", path).code == 0


@pytest.mark.parametrize("length", [0, 1, 20_000])
def test_nothing_derived_is_given_up_for_a_cut_log_without_consent(golden_copy: Unpacked, length: int) -> None:
    path = golden_copy(DEFAULT)
    os.truncate(path / LOG, length)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--yes")
        assert ran.code == 5
        assert "is the disk of the commit log mounted?" in ran.err
        assert rmqtool("forecast", path).code == 3
        planned = asked("recover", path, "--dry-run")[1]
    lost = 60 if length < 2 else 36
    assert planned["loss"]["messages"] == planned["loss"]["without_log"] == lost
    assert "is mounted and that the copy is complete" in planned["notes"][0]
    assert rmqtool("recover", path, "--yes", "--accept-loss").code == 0
    assert rmqtool("verify", path).code == 0


def test_a_zeroed_log_needs_consent_too(golden_copy: Unpacked) -> None:
    path = golden_copy(DEFAULT)
    os.truncate(path / LOG, 0)
    os.truncate(path / LOG, GIB)
    with assert_store_unchanged(path):
        assert "discards 60 messages" in rmqtool("recover", path, "--yes").err
        assert rmqtool("forecast", path).code == 3


@pytest.mark.parametrize("command", ["recover", "rebuild", "salvage"])
@pytest.mark.parametrize("keeps_directory", [True, False])
def test_a_store_without_its_log_is_left_alone(golden_copy: Unpacked, command: str, *, keeps_directory: bool) -> None:
    path = golden_copy(DEFAULT)
    shutil.rmtree(path / "commitlog")
    if keeps_directory:
        (path / "commitlog").mkdir()
    with assert_store_unchanged(path):
        ran = rmqtool(command, path, "--yes", "--accept-loss")
        assert ran.code in (3, 4)
        assert "mounted" in ran.out + ran.err
        assert rmqtool("forecast", path).code == 3


def test_a_missing_last_log_file_needs_consent(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-many-files")
    files = sorted((path / "commitlog").iterdir())
    for file in files[-2:]:
        file.unlink()
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--yes")
        assert (ran.code, "is the disk of the commit log mounted?" in ran.err) == (5, True)
        assert rmqtool("forecast", path).code == 3


def test_a_lone_log_file_of_a_small_broker_is_not_given_a_guessed_length(golden_copy: Unpacked) -> None:
    path = golden_copy(LONE)
    os.truncate(path / LOG, 60_001)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--yes")
        assert ran.code == 5
        assert "--log-file-size" in ran.err
        checked, said = asked("verify", path)
        assert (checked.code, said["summary"]["verdict"]) == (3, "not-fully-checked")
        got = rmqtool("get", path, "--topic", "TopicTest", "--queue-id", 0, "--queue-offset", 0)
        assert (got.code, "--broker-conf" in got.err) == (5, True)
    assert rmqtool("recover", path, "--yes", "--accept-loss", "--log-file-size", 65536).code == 0
    assert (path / LOG).stat().st_size == 65536
    assert rmqtool("verify", path).code == 0


def test_both_sizes_of_an_index_that_is_lost_are_asked_for_at_once(golden_copy: Unpacked) -> None:
    path = golden_copy(LONE)
    shutil.rmtree(path / "index")
    refused = rmqtool("rebuild", path, "--index", "--yes")
    assert refused.code == 5
    assert "--index-slots N and --index-entries N" in refused.err
    assert rmqtool("rebuild", path, "--index", "--index-slots", 16, "--index-entries", 60, "--yes").code in (0, 3)


@pytest.mark.parametrize(("lost", "option"), [("consumequeue", "--queue-file-size"), ("index", "--index-slots")])
def test_sizes_that_nothing_shows_are_asked_for(golden_copy: Unpacked, lost: str, option: str) -> None:
    path = golden_copy(LONE)
    before = derived(path)
    shutil.rmtree(path / lost)
    with assert_store_unchanged(path):
        ran = rmqtool("rebuild", path, "--yes")
        assert ran.code == 5
        assert option in ran.err
        assert "--broker-conf" in ran.err
    assert rmqtool("rebuild", path, "--yes", *SIZES).code == 0
    assert derived(path) == before


def test_a_zeroed_index_file_gives_its_room_for_entries(golden_copy: Unpacked) -> None:
    path = golden_copy(LONE)
    before = derived(path)
    files = sorted((path / "index").iterdir())
    for file in files[1:]:
        file.unlink()
    files[0].write_bytes(bytes(files[0].stat().st_size))
    assert rmqtool("rebuild", path, "--yes").code == 5
    assert rmqtool("rebuild", path, "--yes", "--index-slots", 16).code == 0
    assert derived(path) == before


def test_an_unlikely_room_of_the_only_index_file_is_asked_for(golden_copy: Unpacked) -> None:
    """A broker does not find the keys of entries after its own last one."""
    path = golden_copy(LONE)
    before = derived(path)
    first, *others = sorted((path / "index").iterdir())
    for file in others:
        file.unlink()
    os.truncate(first, first.stat().st_size + 20)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--yes", "--full")
        assert (ran.code, "--index-entries" in ran.err) == (5, True)
    assert rmqtool("recover", path, "--yes", "--full", "--index-entries", 60).code == 0
    assert {name: content for name, content in derived(path).items() if name != "index 0"} == {
        name: content for name, content in before.items() if name != "index 0"
    }
    assert derived(path)["index 0"].rstrip(b"\0") == before["index 0"].rstrip(b"\0")


def test_what_the_brokers_own_file_leaves_out_is_its_default(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(LONE)
    shutil.rmtree(path / "index")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=600\n")
    assert rmqtool("rebuild", path, "--yes", "--broker-conf", conf).code == 0
    assert [file.stat().st_size for file in (path / "index").iterdir()] == [420_000_040]


def test_default_sizes_need_no_answer(golden_copy: Unpacked) -> None:
    path = golden_copy(DEFAULT)
    before = derived(path)
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    assert rmqtool("rebuild", path, "--yes").code == 0
    assert derived(path) == before


def test_a_forecast_says_which_sizes_it_assumes(golden_copy: Unpacked) -> None:
    path = golden_copy(LONE)
    shutil.rmtree(path / "consumequeue")
    assumed = " ".join(asked("forecast", path)[1]["forecasts"][0]["assumptions"])
    assert "only the length of the only commit log file" in assumed
    assert "--queue-file-size" in assumed
    assert (
        asked("forecast", path, "--log-file-size", 65536, "--queue-file-size", 600)[1]["forecasts"][0]["assumptions"]
        == []
    )


def test_a_person_is_asked_for_a_size(golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, messages, screen = survey(open_directory(golden_copy(LONE))), Messages(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    shown: list[str] = []

    def prompt(text: str, **_named: object) -> int:
        screen.write(text)
        time.sleep(1.5)  # progress would come back meanwhile
        shown.append(screen.getvalue())
        return 700

    monkeypatch.setattr("typer.prompt", prompt)

    def plan(found: Store, staging: Path) -> int | None:
        assert staging.is_dir()
        if found.settings.index_entry_count is None:
            raise UnknownSizeError("unknown", "index_entry_count", 1)
        return found.settings.index_entry_count

    with messages.progress("recover"):
        assert plan_with_sizes(store, plan, tmp_path, messages, may_ask=True)[1] == 700
    assert shown[0].endswith("Entries of an index file (maxIndexNum)")
    shutil.rmtree(tmp_path / "plan-0")
    with pytest.raises(UnknownSizeError):
        plan_with_sizes(store, plan, tmp_path, messages, may_ask=False)


@pytest.mark.parametrize("content", ["same", "zeros"])
def test_of_two_queue_files_for_one_offset_the_odd_name_is_a_stray(golden_copy: Unpacked, content: str) -> None:
    path = golden_copy(LONE)
    before = derived(path)
    file = next(file for file in sorted(path.glob("consumequeue/*/*/*")) if int(file.name))
    twin = file.with_name(f"00{file.name}")
    twin.write_bytes(file.read_bytes() if content == "same" else bytes(file.stat().st_size))
    assert findings_of(path) == {"consumequeue.stray-file"}
    # A broker finds a file by its number among all, and its place by the first file: it reads the twin.
    assert rmqtool("forecast", path).code == (0 if content == "same" else 3)
    assert rmqtool("recover", path, "--yes").code == 0
    assert derived(path) == before
    assert rmqtool("verify", path).code == 0


@pytest.mark.parametrize("start", [1, 601, 1201])
def test_a_queue_file_whose_name_is_no_multiple_of_the_size_goes(golden_copy: Unpacked, start: int) -> None:
    """A broker loads it, and from then on finds units in the wrong file."""
    path = golden_copy(LONE)
    before = derived(path)
    file = next(file for file in sorted(path.glob("consumequeue/*/*/*")) if int(file.name) == 600)
    file.with_name(f"{start:020d}").write_bytes(file.read_bytes())
    assert findings_of(path) == {"consumequeue.stray-file"}
    assert rmqtool("recover", path, "--yes").code == 0
    assert derived(path) == before
    assert rmqtool("verify", path).code == 0


@pytest.mark.parametrize("name", ["5.5.0-many-files", "5.5.0-keys-index"])
def test_a_wrong_size_cuts_no_message_off(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    with assert_store_unchanged(path):
        for command in ("recover", "salvage"):
            ran = rmqtool(command, path, "--yes", "--accept-loss", "--log-file-size", 8192)
            assert ran.code == 5
            assert "holds records" in ran.err


def test_a_record_across_the_end_of_a_lone_log_file_shows_that_it_was_cut(golden_copy: Unpacked) -> None:
    path = golden_copy(LONE)
    os.truncate(path / LOG, 16384)  # as good a size as any other
    assert "commitlog.wrong-file-size" in findings_of(path)
    with assert_store_unchanged(path):
        assert rmqtool("forecast", path).code == 3
        assert "--log-file-size" in rmqtool("recover", path, "--yes").err
    assert rmqtool("recover", path, "--yes", "--accept-loss", "--log-file-size", 65536).code == 0
    assert rmqtool("verify", path).code == 0


def test_no_forecast_is_made_where_nothing_shows_the_size_of_a_log_file(golden_copy: Unpacked) -> None:
    """The only file may be a full one of a broker with this size, or a cut one of another."""
    path = golden_copy(LONE)
    os.truncate(path / LOG, 70_001)
    ran = rmqtool("forecast", path)
    assert (ran.code, ran.out) == (5, "")
    assert "--log-file-size" in ran.err
    assert rmqtool("forecast", path, "--log-file-size", 70_001).code == 0
    assert asked("forecast", path, "--log-file-size", 65536)[1]["forecasts"][0]["starts"] is False


def test_a_size_that_only_one_name_shows_is_asked_for(tmp_path: Path) -> None:
    """The size was believed though no file had that length; a broker with the real one did not start on the repair."""
    path = tmp_path / "store"
    make_store(replace(RECIPES["basic"], settings={"mappedFileSizeCommitLog": "50000"}), path, "5.4.0")
    log = path / "commitlog"
    for file in sorted(log.iterdir())[1:]:
        file.unlink()
    os.truncate(log / f"{0:020d}", 50_000)
    (log / f"{50_001:020d}").write_bytes(bytes(54_096))
    version = ("--broker-version", "5.4.0")
    with assert_store_unchanged(path):
        for command, options in (("forecast", ()), ("recover", ("--yes",)), ("salvage", ("--yes",))):
            ran = rmqtool(command, path, *options, *version)
            assert ran.code == 5
            assert "--log-file-size" in ran.err
    size = ("--log-file-size", 50_000)
    assert rmqtool("recover", path, "--yes", "--accept-loss", *version, *size).code == 0
    assert {file.stat().st_size for file in log.iterdir()} == {50_000}


def test_a_name_that_is_a_multiple_of_the_length_shows_the_size_of_a_lone_log_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    shown = "commitlog/00000000000000100000"
    (path / "commitlog").mkdir(parents=True)
    (path / shown).write_bytes(bytes(50_000))
    assert survey(open_directory(path)).log_file_size == LogFileSize(50_000, is_shown=True, is_proven=False)
    assert asked("forecast", path, "--broker-version", "5.3.3")[1]["forecasts"][0]["starts"] is True


def test_a_misnamed_queue_file_is_no_head_of_its_queue(golden_copy: Unpacked) -> None:
    """Where the log's head has expired, a queue goes on from the units in front; not from those of a wrong place."""
    path = golden_copy("5.5.0-many-files")
    (path / LOG).unlink()
    for file in path.glob("consumequeue/*/0/00000000000000000000"):
        file.rename(file.with_name(f"{1:020d}"))
    assert "consumequeue.stray-file" in findings_of(path)
    assert rmqtool("recover", path, "--yes", "--full", "--accept-loss").code == 0
    assert not list(path.glob(f"consumequeue/*/*/{1:020d}"))
    assert findings_of(path) == set()
