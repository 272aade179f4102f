"""Commands keep `--max-memory` over large stores under a limit of the operating system, and print the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.stores import QUEUE_COUNT, write_store
from tests.commands.transcripts import Ran, rmqtool
from tests.memory_group import limited

MIB = 1 << 20
MESSAGES = 600_000
QUEUES = 100_000
FEW_QUEUES = 2_000
EDGE_MIB = 8
"""The least value is told in steps of so much: what the program itself takes may be right at the edge of one."""
COMMANDS = (
    ("verify", 128),
    ("dump --format jsonl", 176),
    ("forecast", 176),
    ("recover --full --dry-run", 176),
    ("rebuild --dry-run", 176),
    ("salvage --dry-run", 176),
    ("stats --by queue", 128),
    ("search order-0000471[0-9] --in keys", 128),
)
COMMANDS_AFTER_CLEAN_STOP = (
    ("watch --once --from-start --max-rate 1G", 128),
    ("convert --queues rocksdb --dry-run", 176),
)
CHECKS_OF_QUEUES = ("verify", "forecast --broker-version 5.5.1", "stats --by queue")
COMMANDS_OF_QUEUES = (
    *CHECKS_OF_QUEUES,
    "dump --format jsonl",
    "search order-0000471[0-9] --in keys",
    "recover --full --dry-run",
    "rebuild --dry-run",
    "salvage --dry-run",
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores of many records, none of which is in both."""
    folder = tmp_path_factory.mktemp("stores")
    for name, body_length in (("a", 100), ("b", 101)):
        write_store(folder / name, MESSAGES, body_length, 64 * MIB)
    return folder / "a", folder / "b"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many records after a clean stop."""
    store = tmp_path_factory.mktemp("stores") / "stopped"
    write_store(store, MESSAGES, 100, 64 * MIB)
    assert rmqtool("recover", store, "--yes").code == 0
    return store


@pytest.fixture(scope="module")
def many_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of_queues(tmp_path_factory.mktemp("stores") / "many", QUEUES)


@pytest.fixture(scope="module")
def few_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of_queues(tmp_path_factory.mktemp("stores") / "few", FEW_QUEUES)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "limit_mib"), COMMANDS)
def test_a_command_keeps_its_limit_over_many_records(command: str, limit_mib: int, stores: tuple[Path, Path]) -> None:
    name, *options = command.split()
    check(limit_mib, name, stores[0], *options)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "limit_mib"), COMMANDS_AFTER_CLEAN_STOP)
def test_a_command_for_stopped_stores_keeps_its_limit_over_many_records(
    command: str, limit_mib: int, stopped: Path
) -> None:
    name, *options = command.split()
    check(limit_mib, name, stopped, *options)


@pytest.mark.slow
def test_a_comparison_of_logs_without_a_common_message_keeps_its_limit(stores: tuple[Path, Path]) -> None:
    check(176, "diff", *stores)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS_OF_QUEUES)
def test_a_command_keeps_the_least_limit_that_it_names_for_many_queues(command: str, many_queues: Path) -> None:
    keeps_named_least(command, many_queues)


@pytest.mark.parametrize("command", CHECKS_OF_QUEUES)
def test_a_command_keeps_the_least_limit_that_it_names(command: str, few_queues: Path) -> None:
    keeps_named_least(command, few_queues)


def store_of_queues(root: Path, queue_count: int) -> Path:
    """A store of three messages a queue, in small files."""
    topic_count = queue_count // QUEUE_COUNT
    write_store(root, 3 * queue_count, 50, 64 * MIB, topic_count=topic_count, consumequeue_file_size=6000)
    return root


def keeps_named_least(command: str, store: Path) -> None:
    """A command refuses too little at once, and ends under a limit of the least that it names."""
    name, *options = command.split()
    limit_mib, refusals = 20, 0
    while (ran := limited_run(limit_mib, name, store, *options)).returncode == 2:
        refusals += 1
        match = re.search(r"at least (\d+)M; \d+M is too little", ran.stderr)
        assert match is not None, ran.stderr
        assert not ran.stdout
        limit_mib = int(match[1]) + EDGE_MIB
    assert ran.returncode in {0, 3}, (limit_mib, ran.stderr)
    assert 1 <= refusals <= 2


def limited_run(limit_mib: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run under a limit that the command knows; what it refuses is refused in a group that would hold it."""
    return limited(max(limit_mib, 64) * MIB, *arguments, "--max-memory", f"{limit_mib}M")


def check(limit_mib: int, *arguments: object) -> None:
    """A command ends under a limit, and prints what it prints without."""
    kept = limited(limit_mib * MIB, *arguments, "--max-memory", f"{limit_mib}M")
    free = rmqtool(*arguments)
    assert _steady(Ran(kept.returncode, kept.stdout, "")) == _steady(free._replace(err="")), kept.stderr


def _steady(ran: Ran) -> Ran:
    return ran._replace(out=re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b|^\S+Z (?=started)", "", ran.out))
