"""Metrics for Prometheus are written whole or not at all, and no name breaks a line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, WriteError
from rmqtool.report.metrics import Metric, write_metrics


def test_samples_of_one_name_have_one_heading(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    path.write_text("# HELP rmqtool_lag old")
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


LABELS = {
    'a"b': r"a\"b",
    "c\nd\x1b[2J\u202e\udce9": r"c\\nd\\x1b[2J\\u202e\\udce9",
    r"c\nd\u202e": r"c\\\\nd\\\\u202e",
    "订单": "订单",
}


def test_labels_are_printable_and_unambiguous(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    write_metrics(path, [Metric("up", "gauge", "Text.", 1, {"topic": label}) for label in LABELS])
    lines = path.read_text("utf-8").splitlines()[2:]
    assert lines == [f'up{{topic="{text}"}} 1' for text in LABELS.values()]
    assert all(line.isprintable() for line in lines)
    assert [visible(line) for line in lines] == list(LABELS)


def visible(line: str) -> str:
    """What Prometheus reads (it knows three escapes, and refuses a line with another), with our escapes undone."""
    value = re.fullmatch(r'up\{topic="((?:[^"\\]|\\["n\\])*)"\} 1', line)
    assert value is not None
    read = re.sub(r'\\(["n\\])', lambda escape: {"n": "\n"}.get(escape[1], escape[1]), value[1])
    return re.sub(r"\\(\\|n|x..|u....)", lambda escape: str(ast.literal_eval(f'"{escape[0]}"')), read)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rmqtool.prom"
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(RefusedError, match=r"rmqtool\.prom: a link, or not a regular file"):
        write_metrics(path, [])
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(WriteError, match="no such file"):
        write_metrics(tmp_path / "gone" / "rmqtool.prom", [])
