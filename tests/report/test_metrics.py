"""Metrics for Prometheus are written whole or not at all, and no name breaks a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import WriteError
from rmqtool.report.metrics import Metric, write_metrics


def test_samples_of_one_name_have_one_heading(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    path.write_text("old")
    write_metrics(
        path,
        [
            Metric("rmqtool_lag", "gauge", "Bytes behind.", 1 << 40, {"store": "a"}),
            Metric("rmqtool_lag", "gauge", "Bytes behind.", 0.5, {"store": "b"}),
            Metric("rmqtool_up", "gauge", "Whether it runs.", True),
        ],
    )
    assert path.read_text() == (
        "# HELP rmqtool_lag Bytes behind.\n# TYPE rmqtool_lag gauge\n"
        'rmqtool_lag{store="a"} 1099511627776\n'
        'rmqtool_lag{store="b"} 0.5\n'
        "# HELP rmqtool_up Whether it runs.\n# TYPE rmqtool_up gauge\n"
        "rmqtool_up{} 1\n"
    )
    assert list(tmp_path.iterdir()) == [path]


def test_labels_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    write_metrics(path, [Metric("up", "gauge", "Text.", 1, {"topic": 'a"b\\c\nd\udce9'})])
    assert path.read_text().splitlines()[-1] == 'up{topic="a\\"b\\\\c\\nd\\udce9"} 1'


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(WriteError, match=r"rmqtool\.prom"):
        write_metrics(path, [])
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(WriteError, match="no such file"):
        write_metrics(tmp_path / "gone" / "rmqtool.prom", [])
