"""A command answers as ever under what is around it, or says why it cannot, and leaves nothing outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from tests.campaign.circumstances import CIRCUMSTANCES, ROOT, Circumstance, run_under
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.fuzz.tiny_recipes import TINY
from tests.store_state import assert_store_unchanged

STORE = "5.5.0-many-no-checkpoint-abort"
COMMANDS = {
    "info": (), "verify": (), "forecast": (), "dump": ("--limit", "50"), "stats": (), "recover": ("--dry-run",),
    "search": ("--topic", "TopicTest"), "report": ("--html", "{folder}/page.html"),
    "evidence": ("--output", "{folder}/bundle"),
}  # fmt: skip
IN_THE_SLICE = ("verify", "evidence")
ENDS = frozenset({0, 2, 3, 4, 5, 6})
MEMORY_MAX = 1 << 30


def check(command: str, circumstance: Circumstance, store: Path, folder: Path) -> None:
    options = [option.format(folder=folder) for option in COMMANDS[command]]
    usual = run_under(Circumstance(), (command, store, *options), folder)
    for name in ("page.html", "bundle"):
        (folder / name).unlink(missing_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    with assert_store_unchanged(store):
        ended = run_under(circumstance, (command, store, *options), folder, temporary=temporary)
    assert ended.code in ENDS, (ended.code, ended.errors[-2000:])
    assert "Traceback" not in ended.errors, ended.errors[-2000:]
    assert "internal error" not in ended.errors
    assert ended.memory_bytes < MEMORY_MAX
    assert list(temporary.iterdir()) == []
    if not circumstance.closed:
        assert ended.code == usual.code, ended.errors


@pytest.mark.parametrize("name", CIRCUMSTANCES)
@pytest.mark.parametrize("command", IN_THE_SLICE)
def test_a_command_ends_as_ever_under(golden: Unpacked, tmp_path: Path, command: str, name: str) -> None:
    check(command, CIRCUMSTANCES[name], golden(STORE), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CIRCUMSTANCES)
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in IN_THE_SLICE])
def test_every_command_ends_as_ever_under(golden: Unpacked, tmp_path: Path, command: str, name: str) -> None:
    check(command, CIRCUMSTANCES[name], golden(STORE), tmp_path)


def test_too_few_addresses_end_with_a_reason(golden: Unpacked, tmp_path: Path) -> None:
    """Even imports may fail then; there is no traceback where the tool has begun."""
    import resource

    few = Circumstance(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    with assert_store_unchanged(golden(STORE)):
        ended = run_under(few, ("verify", golden(STORE)), tmp_path)
    assert ended.code in ENDS, ended.errors[-2000:]


def test_a_reader_that_leaves_ends_it_without_a_word(golden: Unpacked) -> None:
    command = f"{sys.executable} -m rmqtool dump {golden(STORE)} --format jsonl | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode in (0, 141)
    assert ran.stderr == ""
    assert ran.stdout.count("\n") == 1


@pytest.fixture
def immutable(golden_copy: Unpacked) -> Iterator[Path]:
    """A store of which no file may be changed, not even by root."""
    store = golden_copy("5.5.0-crashed")
    files = [path for path in store.rglob("*") if path.is_file()]
    set_flag = [shutil.which("chattr") or "chattr", "+i", *map(str, files)]
    if not shutil.which("chattr") or subprocess.run(set_flag, capture_output=True, check=False).returncode:
        subprocess.run(["chattr", "-i", *map(str, files)], capture_output=True, check=False)
        pytest.skip("no file can be made immutable here")
    yield store
    subprocess.run(["chattr", "-i", *map(str, files)], capture_output=True, check=True)


def test_files_that_nobody_may_change_stop_a_repair_before_it_begins(immutable: Path) -> None:
    before = {path: path.read_bytes() for path in immutable.rglob("*") if path.is_file()}
    ran = rmqtool("recover", immutable, "--yes", "--accept-loss")
    assert ran.code in (4, 5), ran.err
    assert "internal error" not in ran.err
    assert {path: path.read_bytes() for path in before} == before


def test_two_hundred_directories_of_one_log(tmp_path: Path) -> None:
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    make_store(TINY["tiny-crashed"], store, "5.5.0")
    places = [store / "commitlog", *(tmp_path / f"log{number}" for number in range(199))]
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        places[number].mkdir(exist_ok=True)
        file.rename(places[number] / file.name)
    for place in places:
        place.mkdir(exist_ok=True)
    conf.write_text(f"storePathCommitLog={','.join(map(str, places))}\n")
    for command in ("info", "verify", "forecast"):
        ran = rmqtool(command, store, "--broker-conf", conf, "--format", "json")
        assert ran.code in ENDS, ran.err
        assert "internal error" not in ran.err
        json.loads(ran.out)


@pytest.mark.slow
def test_three_hundred_thousand_files(tmp_path: Path) -> None:
    """As many queue files as a broker with 100,000 queues has after some days: sparse, in 1,000 topics."""
    store = tmp_path / "store"
    make_store(TINY["tiny-crashed"], store, "5.5.0")
    for topic in range(1000):
        for queue in range(100):
            folder = store / f"consumequeue/many-{topic}/{queue}"
            folder.mkdir(parents=True)
            for number in range(3):
                (folder / f"{number * 600:020d}").touch()
                os.truncate(folder / f"{number * 600:020d}", 600)
    for command in ("info", "verify", "forecast"):
        ended = run_under(Circumstance(), (command, store, "--format", "json"), tmp_path, seconds=3000)
        assert ended.code in ENDS, ended.errors[-2000:]
        assert ended.memory_bytes < 2 << 30, f"{command}: {ended.memory_bytes >> 20} MiB"
