"""Commands that only read answer of a store elsewhere what they answer of the same store on a disk; others refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.command_list import COMMANDS
from rmqtool.errors import how_to_install
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.remote.memory_file_system import put_store

STORES = (
    "5.5.0-crashed",
    "4.9.7-clean-basic",
    "5.5.0-expired-head",
    "5.5.0-damage-zero-hole-abort",
    "5.5.0-damage-cq-last-file-zero",
    "5.5.0-clean-empty",
    "5.5.0-rocksdb-cq",
    "5.5.0-record-crc",
)
READING = (
    ("verify", "--format", "json"),
    ("forecast", "--format", "json"),
    ("forecast", "--format", "json", "--broker-version", "all"),
    ("dump", "--format", "jsonl", "--body", "hex"),
    ("dump", "--format", "jsonl", "--type", "consumequeue"),
    ("dump", "--format", "jsonl", "--type", "index"),
    ("dump", "--format", "jsonl", "--reverse", "--limit", "5"),
    ("get", "--format", "json", "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "3", "--count", "4"),
    ("get", "--format", "json", "--topic", "OrderEvents", "--key", "order-1"),
)


def both(command: Sequence[str], path: Path) -> tuple[Ran, Ran]:
    """The command on a store of a disk and on a copy of it elsewhere, as if both had the same name."""
    url = put_store(path, path.name)
    here, there = (rmqtool(command[0], place, *command[1:]) for place in (path, url))
    for ran in (here, there):
        assert "Traceback" not in ran.err
        assert "internal error" not in ran.err
    return _unnamed(here, str(path)), _unnamed(there, url)


def _unnamed(ran: Ran, name: str) -> Ran:
    commands = re.sub(r'"(rmqtool \w+ [^"]*NAME[^"]*)"', "null", ran.out.replace(name, "NAME"))
    errors = "".join(
        line for line in ran.err.replace(name, "NAME").splitlines(keepends=True) if "belong to" not in line
    )
    return Ran(ran.code, commands, errors)


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("name", STORES)
def test_what_is_read_is_the_same(golden: Unpacked, name: str, command: tuple[str, ...]) -> None:
    here, there = both(command, golden(name))
    assert (there.code, there.err) == (here.code, here.err)
    assert without_step(there.out) == without_step(here.out)


def without_step(out: str) -> str:
    """All but the next step: a store elsewhere has to be copied before a command can repair it."""
    out = re.sub(r'"next_step": \{[^}]*\},\s*"needs_decision": \w+', "", out)
    return re.sub(r"^Next.*\n(  .*\n)*", "", out, flags=re.MULTILINE)


@pytest.mark.parametrize("name", STORES)
def test_info_knows_what_can_be_known(golden: Unpacked, name: str) -> None:
    here, there = (json.loads(ran.out) for ran in both(("info", "--format", "json"), golden(name)))
    assert (there["lock"], there["owner"], there["free_bytes"]) == ("unknown", None, None)
    left_out = {"lock", "lock_owner_pid", "owner", "free_bytes", "next_step", "needs_decision"}
    assert {key: there[key] for key in there.keys() - left_out} == {key: here[key] for key in here.keys() - left_out}
    assert rmqtool("info", put_store(golden(name), name)).code == 0


def test_diff_takes_urls_on_both_sides(golden: Unpacked, tmp_path: Path) -> None:
    paths = [golden("5.5.0-damage-base"), golden("5.5.0-damage-zero-hole")]
    urls = [put_store(path, path.name) for path in paths]
    direct = json.loads(rmqtool("diff", *paths, "--format", "json").out)
    for sides in (urls, [paths[0], urls[1]], [urls[0], paths[1]]):
        ran = rmqtool("diff", *sides, "--format", "json")
        found = json.loads(ran.out)
        assert ran.code == 3
        for name in "ab":
            found[name]["store"] = direct[name]["store"]
        assert found["next_step"]["command"] == f"rmqtool verify {sides[1]}"
        found["next_step"] = direct["next_step"]
        assert found == direct
    assert rmqtool("diff", "--make-manifest", tmp_path / "m", urls[1]).code == 0
    assert rmqtool("diff", paths[1], "--manifest", tmp_path / "m").code == 0


@pytest.mark.parametrize(
    "place",
    ["commitlog", "commitlog/00000000000000065536", "consumequeue/TopicTest/0", "consumequeue", "index", "checkpoint"],
)
def test_dump_shows_a_part_of_a_store(golden: Unpacked, place: str) -> None:
    path = golden("5.5.0-damage-base")
    url = put_store(path, path.name)
    here, there = (rmqtool("dump", f"{root}/{place}", "--format", "jsonl") for root in (path, url))
    assert there.code == here.code == 0
    assert there.out == here.out


def test_nothing_is_followed_and_no_repair_is_advised(golden: Unpacked) -> None:
    url = put_store(golden("5.5.0-many-no-queues"), "no-queues")
    assert rmqtool("dump", url, "--follow").code == 2
    step = json.loads(rmqtool("info", url, "--format", "json").out)["next_step"]
    assert step["command"] is None
    assert step["reason"].startswith("copy the store to a disk, where rmqtool rebuild")


def test_a_file_url_is_a_path(golden: Unpacked) -> None:
    path = golden("5.5.0-crashed")
    assert rmqtool("forecast", path.as_uri()) == rmqtool("forecast", path)


def arguments_of(command: str) -> list[str]:
    return {
        "append": ["--topic", "T", "--body", "x"],
        "recover": ["--dry-run"],
        "rebuild": ["--dry-run"],
        "salvage": ["--dry-run"],
        "undo": ["--list"],
    }[command]


@pytest.mark.parametrize("command", ["append", "recover", "rebuild", "salvage", "undo"])
def test_commands_that_write_refuse_a_url(command: str) -> None:
    assert command in COMMANDS
    ran = rmqtool(command, "s3://user:secret@bucket/store?region=x", *arguments_of(command))
    assert ran.code == 2
    assert ran.err == (
        "rmqtool: s3://bucket/store: this command writes, but a store at a URL is read-only; "
        "copy the store to a disk first\n"
    )


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("memory://nothing-there", 4, "memory://nothing-there: no such directory"),
        ("nosuch://place/store", 4, "nosuch://place/store: "),
        ("s3://bucket/store?colour=blue", 2, "unknown option colour"),
        ("s3://", 2, "no bucket"),
    ],
)
@pytest.mark.parametrize("command", ["info", "verify", "forecast", "dump"])
def test_what_is_not_there_is_one_line(command: str, url: str, code: int, said: str) -> None:
    ran = rmqtool(command, url)
    assert ran.code == code
    assert said.replace("directory", "") in ran.err
    assert ran.err.count("\n") == 1


def test_a_log_elsewhere_is_named_inside_the_store(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-damage-base")
    (path / "commitlog").rename(path / "old-log")
    url = put_store(path, "moved")
    assert (
        json.loads(rmqtool("info", url, "--commitlog", "old-log", "--format", "json").out)["commitlog"]["file_count"]
        == 5
    )
    for outside in ("/data/log", "../log", "s3://bucket/log"):
        assert rmqtool("info", url, "--commitlog", outside).code == 2


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make an import fail, as where a library is not installed."""
    import sys

    return lambda name: monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("missing", "url"), [("pyarrow", "s3://bucket/x"), ("fsspec", "memory://x")])
def test_a_library_that_is_not_there_is_named(without: Any, missing: str, url: str) -> None:
    without(missing)
    ran = rmqtool("info", url)
    assert (ran.code, ran.err) == (4, f"rmqtool: {url}: needs {missing}: {how_to_install('remote')}\n")
