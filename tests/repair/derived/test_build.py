"""Threads that share the files of a log, or a runner, build what one thread builds: byte for byte, names too."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.dispatch import derived_writer
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.result import BuildRequest, BuildResult
from rmqtool.scan.runner import Runner
from tests import golden_stores
from tests.conftest import Unpacked
from tests.repair.golden_repairs import options_of, rules_of, store_of
from tests.repair.runners import PicklingRunner


def _names() -> list[ParameterSet]:
    names = [*golden_stores.healthy_names(), *golden_stores.crashed_names(), *golden_stores.damaged_names()]
    often = ("5.5.0-large", "5.5.0-crashed", "5.5.0-damage-zero-hole", "5.5.0-damage-torn", "5.5.0-stale", "5.5.0-many")
    return [
        pytest.param(name, marks=() if name.startswith(often) else pytest.mark.slow) for name in dict.fromkeys(names)
    ]


def _built(
    path: Path, name: str, directory: Path, wanted: BuildRequest, runner: Runner | None = None, **options: Any
) -> tuple[BuildResult, dict[str, bytes]]:
    directory.mkdir()
    chosen = replace(options_of(name), **options)
    made = build(store_of(path, name), rules_of(name), wanted, directory, chosen, None, runner)
    files = {str(found.relative_to(directory)): found.read_bytes() for found in directory.rglob("*") if found.is_file()}
    return made, files


def _all(_topic: str, _queue_id: int) -> bool:
    return True


def _said(made: BuildResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(made).items() if name not in ("directory", "store", "request")}


@pytest.mark.parametrize("name", _names())
def test_threads_build_what_one_builds(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = golden(name)
    wanted = BuildRequest(_all, index=True)
    one, files = _built(path, name, tmp_path / "one", wanted, threads=1)
    for part_bytes in (700, 5000):
        several, theirs = _built(path, name, tmp_path / str(part_bytes), wanted, threads=3, part_bytes=part_bytes)
        assert theirs == files
        assert _said(several) == _said(one)
    spread, theirs = _built(path, name, tmp_path / "spread", wanted, PicklingRunner())
    assert theirs == files
    assert _said(spread) == _said(one)
    monkeypatch.setattr(derived_writer, "HELD_ROWS_MAX", 1)
    few, theirs = _built(path, name, tmp_path / "few", wanted, threads=3, part_bytes=700)
    assert theirs == files
    assert _said(few) == _said(one)


@pytest.mark.parametrize("name", ["4.9.7-large", "5.5.0-clean-basic"])
def test_threads_end_where_one_ends(golden: Unpacked, tmp_path: Path, name: str) -> None:
    path = golden(name)
    records = golden_stores.manifest(name).records
    for number, record in enumerate(records[:: max(1, len(records) // 7)]):
        wanted = BuildRequest(_all, index=True, log_end=record.at)
        one, files = _built(path, name, tmp_path / f"one-{number}", wanted, threads=1)
        several, theirs = _built(path, name, tmp_path / f"several-{number}", wanted, threads=3, part_bytes=700)
        spread, files_spread = _built(path, name, tmp_path / f"spread-{number}", wanted, PicklingRunner())
        assert theirs == files_spread == files
        assert _said(several) == _said(spread) == _said(one)
