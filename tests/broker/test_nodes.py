"""Whole brokers start, or do not, on a store with a FIFO, a directory or the like for a file, as the forecast says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.load import LoadFailure, demand_openable_files
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.program import JavaProgram, JudgeError
from tests.broker.whole import WholeBroker
from tests.odd_nodes import NODES, put_node

pytestmark = pytest.mark.slow

START_S: Final = 30
"""A broker that has not started by then waits for a FIFO; others take some three seconds."""
VERSIONS: Final = ("4.9.7", "5.5.0")
FILES: Final = (
    "abort", "abort.bak", "checkpoint", "lock", "config/topics.json", "config/topics.json.bak",
    "config/consumerOffset.json", "config/timermetrics", "config/timercheck", "timerwheel",
    "compaction/position-checkpoint", "rocksdbstore/CURRENT",
)  # fmt: skip
BRIEF: Final = ("abort", "checkpoint", "config/topics.json")
"""Those that each run tries with all nodes; of the others a FIFO and a directory are tried."""
CASES: Final = [(file, node) for file in FILES for node in NODES if file in BRIEF or node in ("FIFO", "directory")]


def starts(version: str, path: Path) -> bool:
    try:
        WholeBroker(version, path).kill()
    except JudgeError:
        return False
    return True


@pytest.mark.parametrize(("file", "node"), CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_forecast_is_what_a_broker_does(
    judge_of: Callable[[str], Judge],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    file: str,
    node: str,
) -> None:
    del judge_of
    ask = JavaProgram.ask
    monkeypatch.setattr(JavaProgram, "ask", lambda program, op, _=60, **fields: ask(program, op, START_S, **fields))
    for name in ("config", "commitlog"):
        (tmp_path / name).mkdir()
    put_node(tmp_path / file, node)
    try:
        view = open_directory(tmp_path)
        demand_openable_files(survey(view), rules_for(version), StoreConfigs(view))
        forecast = True
    except LoadFailure:
        forecast = False
    assert forecast == starts(version, tmp_path)
