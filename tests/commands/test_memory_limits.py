"""Commands keep `--max-memory` over large stores under a limit of the operating system, and print the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.stores import write_store
from tests.commands.transcripts import Ran, rmqtool
from tests.memory_group import limited

pytestmark = pytest.mark.slow

MIB = 1 << 20
MESSAGES = 600_000
COMMANDS = (
    ("verify", 128),
    ("dump --format jsonl", 176),
    ("forecast", 176),
    ("recover --full --dry-run", 176),
    ("rebuild --dry-run", 176),
    ("salvage --dry-run", 176),
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
    check(176, "diff", *stores)


def check(limit_mib: int, *arguments: object) -> None:
    """A command ends under a limit, and prints what it prints without."""
    kept = limited(limit_mib * MIB, *arguments, "--max-memory", f"{limit_mib}M")
    free = rmqtool(*arguments)
    assert _steady(Ran(kept.returncode, kept.stdout, "")) == _steady(free._replace(err="")), kept.stderr


def _steady(ran: Ran) -> Ran:
    return ran._replace(out=re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b", "", ran.out))
