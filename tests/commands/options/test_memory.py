"""`--max-memory`: which commands have it, what is refused, and that it is kept under a limit of the system's."""

from __future__ import annotations

import re

import pytest

from rmqtool.commands.app import load
from rmqtool.commands.command_list import COMMANDS
from rmqtool.commands.options.run import FILE_BYTES, WORK_BYTES, byte_count
from rmqtool.errors import UsageError
from rmqtool.memory import memory_budget
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.memory_group import limited

STORE = "5.5.0-damage-base"


def test_every_command_that_reads_a_whole_store_has_the_option() -> None:
    having = {name for name in COMMANDS if any("--max-memory" in parameter.opts for parameter in load(name).params)}
    assert having == set(WORK_BYTES)
    assert set(COMMANDS) - having == {"info", "get", "undo", "append", "export", "fixture", "formats"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1048576", 1 << 20),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("1g", 1 << 30),
        ("64MB", 64_000_000),
        ("2 K", 2048),
    ],
)
def test_sizes_have_units(text: str, count: int) -> None:
    assert byte_count(text, "--max-memory") == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5G", "64X", "64iB", "1" * 16])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--max-memory: .* is not a number of bytes such as 20M"):
        byte_count(text, "--max-memory")


def test_the_least_value_that_is_told_works_under_a_limit_of_the_system(golden: Unpacked) -> None:
    store = golden(STORE)
    refused = limited(1 << 30, "verify", store, "--max-memory", "20M")
    assert refused.returncode == 2, refused.stderr
    match = re.search(r"at least (\d+)M; 20M is too little", refused.stderr)
    assert match is not None, refused.stderr
    least = int(match[1]) + 8  # in steps of 8 MiB: what the program itself takes may be right at the edge of one
    kept = limited(least << 20, "verify", store, "--format", "jsonl", "--max-memory", f"{least}M")
    free = rmqtool("verify", store, "--format", "jsonl")
    assert kept.returncode == free.code == 0, kept.stderr
    assert _without_seconds(kept.stdout) == _without_seconds(free.out)


@pytest.mark.parametrize(
    "command",
    [
        "verify {}", "dump {}", "stats {}", "search {} x", "diff {} {}", "forecast {}", "watch {} --once",
        "recover {} --dry-run", "rebuild {} --dry-run", "salvage {} --dry-run", "report {} --html {}.html",
        "evidence {} --output {}.tar.zst", "merge {} --output {}.merged", "extract {} --topic T --output {}.new",
        "convert {} --queues rocksdb --dry-run", "mirror 127.0.0.1:1 {}", "replay {} --to 127.0.0.1:1",
        "patch {}/commitlog/00000000000000000000 --at 0 --set flag=5 --dry-run",
    ],
)  # fmt: skip
def test_each_file_of_a_store_counts_before_the_work(
    command: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILE_BYTES, command.split(maxsplit=1)[0], 1 << 30)
    ran = rmqtool(*command.replace("{}", str(golden(STORE))).split(), "--max-memory", "4G")
    assert ran.code == 2
    assert re.search(r"this store needs at least \d+M; 4096M is too little", ran.err)
    assert not ran.out


def test_the_system_kills_what_holds_more_than_its_limit(golden: Unpacked) -> None:
    assert limited(16 << 20, "verify", golden(STORE)).returncode == -9


def test_the_limit_ends_with_the_command(golden: Unpacked) -> None:
    assert rmqtool("verify", golden(STORE), "--max-memory", "4G").code == 0
    assert memory_budget().limit == 4 << 30
    assert rmqtool("verify", golden(STORE)).code == 0
    assert not memory_budget().is_chosen


def test_memory_of_spark_is_not_ours_to_limit(golden: Unpacked) -> None:
    ran = rmqtool("verify", golden(STORE), "--max-memory", "4G", "--master", "local[1]")
    assert ran.code == 2
    assert "--conf spark.driver.memory=SIZE" in ran.err


def _without_seconds(text: str) -> str:
    return re.sub(r'"seconds": [^,}]*', "", text)
