"""Commands keep `--max-memory` over large stores under a limit of the operating system, and print the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.stores import columns, write_store
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import NEWEST, rules_for
from tests.commands.transcripts import Ran, rmqtool
from tests.memory_group import limited

pytestmark = pytest.mark.slow

MIB = 1 << 20
MESSAGES = 600_000
QUEUES = 100_000
COMMANDS = (
    ("verify", 128),
    ("dump --format jsonl", 136),
    ("stats", 136),
    ("forecast", 184),
    ("recover --full --dry-run", 184),
    ("rebuild --dry-run", 184),
    ("salvage --dry-run", 184),
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores of many records, none of which is in both."""
    folder = tmp_path_factory.mktemp("stores")
    for name, body_length in (("a", 100), ("b", 101)):
        write_store(folder / name, MESSAGES, body_length, 64 * MIB)
    return folder / "a", folder / "b"


@pytest.mark.parametrize(("command", "limit_mib"), COMMANDS)
def test_a_command_keeps_its_limit_over_many_records(command: str, limit_mib: int, stores: tuple[Path, Path]) -> None:
    name, *options = command.split()
    check(limit_mib, name, stores[0], *options)


def test_a_comparison_of_logs_without_a_common_message_keeps_its_limit(stores: tuple[Path, Path]) -> None:
    check(136, "diff", *stores)


def test_a_report_keeps_its_limit(stores: tuple[Path, Path], tmp_path: Path) -> None:
    ran = limited(368 * MIB, "report", stores[0], "--html", tmp_path / "a.html", "--max-memory", "368M")
    assert ran.returncode == rmqtool("report", stores[0], "--html", tmp_path / "b.html").code, ran.stderr


def test_many_queues_keep_the_limit(tmp_path: Path) -> None:
    config = WriterConfig(commitlog_file_size=64 * MIB, consumequeue_file_size=400)
    with new_store(tmp_path / "store", rules_for(NEWEST), config) as writer:
        for first in range(0, 2 * QUEUES, 10_000):
            numbers = range(first, first + 10_000)
            topics = [f"Topic{number % QUEUES // 8}" for number in numbers]
            queue_ids = [number % 8 for number in numbers]
            batch = replace(columns(first, 10_000, 100), topics=topics, queue_ids=queue_ids)
            assert writer.put_columns(batch) is not None
        writer.close(crash=True)
    check(352, "verify", tmp_path / "store")


def check(limit_mib: int, *arguments: object) -> None:
    """A command ends under a limit, and prints what it prints without."""
    kept = limited(limit_mib * MIB, *arguments, "--max-memory", f"{limit_mib}M")
    free = rmqtool(*arguments)
    assert _steady(Ran(kept.returncode, kept.stdout, "")) == _steady(free._replace(err="")), kept.stderr


def _steady(ran: Ran) -> Ran:
    return ran._replace(out=re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b", "", ran.out))
