"""A FIFO, socket, device, directory or odd link where a broker has a file: named, never opened, never called OK."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.odd_nodes import NODES, put_node

STORE = "5.5.0-clean-basic"
WAIT_S = 20
FILES = (
    "abort", "abort.bak", "checkpoint", "lock", "config/topics.json", "config/topics.json.bak",
    "config/consumerOffset.json", "config/consumerOffset.json.tmp", "config/timermetrics", "config/transactionMetrics",
    "config/timercheck", "compaction/position-checkpoint", "rocksdbstore/CURRENT", "rocksdbstore/000008.log",
    "kvStore/CURRENT", "consumequeue/CURRENT", "config/topics/MANIFEST-000005", "timerwheel",
    "timerlog/00000000000000000000", "epochFileCheckpoint",
)  # fmt: skip
"""Those that a broker opens by their names."""
KINDS = {"commitlog": "commitlog", "consumequeue": "consumequeue/OrderEvents/0", "index": "index"}
"""Directories whose last file is exchanged, by the kind that `dump` calls it."""


class Hung(Exception):  # noqa: N818 - no error of this program
    """A command waited for a FIFO."""


@contextmanager
def in_time() -> Iterator[None]:
    def hung(_signal: int, _frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(WAIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def ran(*words: object) -> Ran:
    with in_time():
        return rmqtool(*words)


def contents(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time and content of all that is in a store; of a node its mode alone."""
    state = {}
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(folder, name)
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            content = path.read_bytes() if is_file else b""
            state[str(path)] = status.st_mode, status.st_mtime_ns if is_file else 0, content
    return state


@pytest.fixture
def store(golden_copy: Unpacked) -> Path:
    return golden_copy(STORE)


def told(text: str, file: str, node: str) -> bool:
    """Whether a text names a node, wherever its lines are broken."""
    return f"{file}: a {node}, not a regular file" in " ".join(text.split())


SLICE = [(file, ["FIFO", list(NODES)[1 + number % (len(NODES) - 1)]]) for number, file in enumerate(FILES)]
ALL = [pytest.param(file, list(NODES), marks=pytest.mark.slow, id=f"{file}-all") for file in FILES]


@pytest.mark.parametrize(("file", "nodes"), [*SLICE, *ALL])
def test_what_a_broker_opens_and_is_no_file_is_named(store: Path, file: str, nodes: list[str]) -> None:
    rows = ran("dump", store).out
    for node in nodes:
        put_node(store / file, node)
        before = contents(store)
        for command in (("verify",), ("forecast",), ("recover", "--dry-run"), ("rebuild", "--dry-run"), ("info",)):
            answer = ran(command[0], store, *command[1:])
            assert told(answer.out + answer.err, file, node), (command, node)
            assert answer.code == (0 if command == ("info",) else 4), (command, node)
        assert json.loads(ran("info", store, "--format", "json").out)["verdict"] == "not-readable"
        [row] = [
            row
            for row in map(json.loads, ran("verify", store, "--format", "jsonl").out.splitlines())
            if row.get("file") == file
        ]
        assert row["id"] == "store.unreadable"
        dump = ran("dump", store)
        assert (dump.code, told(dump.err, file, node), dump.out) == (0, True, rows)
        assert ran("stats", store).code == 0
        assert ran("append", store, "--topic", "OrderEvents", "--body", "x", "--after-crash").code in (4, 5)
        assert contents(store) == before


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_the_name_of_a_log_queue_or_index_file_is_named(store: Path, kind: str, node: str) -> None:
    path = max((store / KINDS[kind]).iterdir())
    file = str(path.relative_to(store))
    put_node(path, node)
    before = contents(store)
    for command in ("verify", "forecast"):
        assert ran(command, store).code == 3
    dump = ran("dump", store, "--type", kind)
    assert (dump.code, told(dump.err, file, node)) == (4, True)
    question = ("--topic", "OrderEvents", "--queue-id", "0", "--queue-offset", "999999")
    assert told((answer := ran("get", store, *question)).err, file, node)
    assert answer.code == 4
    assert told(ran("info", store).out, file, node)
    assert ran("recover", store, "--dry-run").code in (3, 4)
    assert ran("stats", store).code == (3 if kind == "commitlog" else 0)
    assert contents(store) == before


def test_a_checkpoint_that_is_no_file_is_not_missing(store: Path) -> None:
    put_node(store / "checkpoint", "FIFO")
    rows = [json.loads(line) for line in ran("verify", store, "--format", "jsonl").out.splitlines()]
    assert "checkpoint.missing" not in {row.get("id") for row in rows}


def test_a_start_is_forecast_by_version(store: Path) -> None:
    """Since 5.x brokers read `abort` when they start; 4.9.7 looks whether it is there."""
    put_node(store / "abort", "FIFO")
    forecasts = [
        json.loads(line)
        for line in ran("forecast", store, "--broker-version", "all", "--format", "jsonl").out.splitlines()
    ]
    reasons = {row["broker_version"]: row["why_not"] for row in forecasts if "broker_version" in row}
    assert reasons["4.9.8"] is None
    assert reasons["5.5.1"] == "abort: a FIFO, not a regular file: a broker that opens it waits without end"


def test_what_to_do_is_to_move_it_away(store: Path) -> None:
    put_node(store / "lock", "directory")
    answer = json.loads(ran("info", store, "--format", "json").out)
    assert answer["next_step"] == {"command": None, "reason": "Move lock out of the store"}
    (store / "lock").rmdir()
    (store / "lock").touch()
    assert ran("verify", store).code == 0
