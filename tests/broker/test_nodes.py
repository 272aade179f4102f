"""Whole brokers start, or do not, on a store with a FIFO, a directory or the like for a file, as the forecast says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.load import LoadFailure, demand_openable_files
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.broker import whole
from tests.broker.broker import Judge
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.odd_nodes import NODES, put_node

pytestmark = pytest.mark.slow

START_S: Final = 20
"""A broker that has not started by then waits for a FIFO; others take some three seconds."""
VERSIONS: Final = ("4.9.7", "5.5.0")
FILES: Final = (
    "abort", "abort.bak", "abort.tmp", "checkpoint", "lock", "config/topics.json", "config/topics.json.bak",
    "config/consumerOffset.json", "config/consumerFilter.json", "config/transactionMetrics",
    "config/transactionMetrics.bak", "compaction/position-checkpoint", "rocksdbstore/CURRENT",
)  # fmt: skip
OF_TIMER: Final = ("config/timermetrics", "config/timermetrics.bak", "config/timercheck", "timerwheel")
FULL: Final = ("abort", "abort.bak", "checkpoint", "config/topics.json", "config/topics.json.bak")
"""Those with which all nodes are tried; with the others a FIFO and a directory."""
CASES: Final = [
    (file, node) for file in (*FILES, *OF_TIMER) for node in NODES if file in FULL or node in ("FIFO", "directory")
]


def starts(version: str, path: Path, *, runs_timer: bool) -> bool:
    try:
        WholeBroker(version, path, {"timerWheelEnable": runs_timer}).kill()
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
    monkeypatch.setattr(whole, "START_TIMEOUT_SECONDS", START_S)
    for name in ("config", "commitlog"):
        (tmp_path / name).mkdir()
    put_node(tmp_path / file, node)
    try:
        view = open_directory(tmp_path)
        store = survey(view, Settings(runs_timer=file in OF_TIMER))
        demand_openable_files(store, rules_for(version), StoreConfigs(view))
        forecast = True
    except LoadFailure:
        forecast = False
    assert forecast == starts(version, tmp_path, runs_timer=file in OF_TIMER)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_only_log_file_may_be_none(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str, node: str
) -> None:
    """Newer brokers skip a directory, and delete what has no length; older ones find a file that is too short."""
    del judge_of
    (tmp_path / "config").mkdir()
    put_node(tmp_path / "commitlog" / ("0" * 20), node)
    answer = rmqtool("forecast", tmp_path, "--broker-version", version, "--format", "json")
    [forecast] = json.loads(answer.out)["forecasts"]
    assert answer.code == 3
    assert forecast["starts"] == starts(version, tmp_path, runs_timer=False) == (version == "5.5.0")
