"""A real broker on a store whose repair was killed refuses to load and changes nothing; the original is to be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import RefusedError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.steps import Step, create_file, remove_file, replace_file, write_range
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.repair.machine.undo import undo_latest
from rmqtool.store.source import Literal, Zeros
from rmqtool.store.view import DirectoryView
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.versions import ROUTINE
from tests.golden_stores import config_and_topics, unpack
from tests.repair.small_stores import Counting, files_of, killed_at

STORE = "5.5.0-crashed"
MAY_CHANGE = ("rocksdbstore", "lock", "config", "timerwheel", "timerlog", "compaction")
"""What a broker touches though it does not load: its own bookkeeping, nothing of a message."""
POINTS = 4
"""So many of the points at which the store is guarded are shown to each broker; the slow test shows all."""

JudgeOf = Callable[[str], Judge]


def harmful_plan(places: StorePaths) -> Plan:
    """Steps of every kind; half of them done would cost messages as soon as a broker started."""
    view = DirectoryView(places.root)
    logs = [entry.path for entry in view.list("commitlog")]
    topic = next(entry.path for entry in view.list("consumequeue") if view.list(entry.path))
    queue = view.list(f"{topic}/0")[0]
    index = view.list("index")[0]
    steps: list[Step] = [
        write_range(view, logs[0], 0, Zeros(4096), "harm in the log"),
        remove_file(view, logs[-1], "a log file"),
        replace_file(view, queue.path, Literal(b"\1" * queue.size), "a queue"),
        create_file(view, f"{topic}/77/{queue.name}", Zeros(queue.size), "another queue"),
        remove_file(view, index.path, "an index file"),
        replace_file(view, "checkpoint", Zeros(4096), "the checkpoint"),
        remove_file(view, "abort", "last of all"),
    ]
    return Plan("recover", fingerprint(places), "5.5.0", tuple(steps))


def examined(judge: Judge, directory: Path) -> dict[str, Any]:
    return judge.examine(directory, *config_and_topics(STORE))


def guarded_points(folder: Path) -> list[int]:
    """The changes in front of which a killed repair leaves its fence."""
    watch = Counting()
    fenced: list[int] = []
    places = StorePaths(unpack(STORE, folder))
    plan = harmful_plan(places)

    def look(change: str, place: Path) -> None:
        watch(change, place)
        if is_fenced(places):
            fenced.append(watch.count)

    apply_plan(plan, places, disk=Disk(look))
    return fenced


def assert_kept_out(judge: Judge, folder: Path, point: int) -> None:
    places = StorePaths(unpack(STORE, folder / str(point)))
    original = files_of(places.root)
    plan = harmful_plan(places)
    assert killed_at(point, lambda disk: apply_plan(plan, places, disk=disk))
    shown = copy_store(places.root, folder / f"shown-{point}")
    report = examined(judge, shown)
    assert not report["load"]
    touched = [path for kind in ("removed", "added", "changed") for path in report["filesAfter"][kind]]
    assert [path for path in touched if path.split("/")[0] not in MAY_CHANGE] == []
    # The judge's process has the files mapped until it ends, so what it saw is taken back in a copy.
    for store in (places.root, copy_store(shown, folder / f"alone-{point}")):
        undo_latest(StorePaths(store))
        kept = {path: state for path, state in files_of(store).items() if path.split("/")[0] not in MAY_CHANGE}
        assert kept == {path: state for path, state in original.items() if path.split("/")[0] not in MAY_CHANGE}


@pytest.mark.parametrize("version", ROUTINE)
def test_a_broker_is_kept_out_of_a_store_by_halves(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    points = guarded_points(tmp_path / "whole")
    chosen = [points[number * (len(points) - 1) // (POINTS - 1)] for number in range(POINTS)]
    for point in chosen:
        assert_kept_out(judge_of(version), tmp_path, point)


@pytest.mark.slow
@pytest.mark.parametrize("version", ROUTINE)
def test_a_broker_is_kept_out_at_every_point(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    for point in guarded_points(tmp_path / "whole"):
        assert_kept_out(judge_of(version), tmp_path, point)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_same_store_without_the_fence_is_loaded(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """So it is the fence that keeps the broker out, and nothing else about a killed repair."""
    points = guarded_points(tmp_path / "whole")
    places = StorePaths(unpack(STORE, tmp_path / "killed"))
    plan = harmful_plan(places)
    assert killed_at(points[-1], lambda disk: apply_plan(plan, places, disk=disk))
    for fence in places.fences:
        fence.shown.unlink()
    report = examined(judge_of(version), places.root)
    assert report["load"]
    assert report["filesAfter"]["changed"]


@pytest.mark.parametrize("version", ROUTINE)
def test_nothing_is_taken_back_once_a_broker_has_run(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    places = StorePaths(unpack(STORE, tmp_path))
    view = DirectoryView(places.root)
    step = remove_file(view, "abort", "handed over")
    apply_plan(Plan("recover", fingerprint(places), "5.5.0", (step,)), places)
    assert examined(judge_of(version), places.root)["load"]
    before = files_of(places.root)
    with pytest.raises(RefusedError, match="has its files mapped"):  # by the judge's process, until it ends
        undo_latest(places)
    alone = StorePaths(copy_store(places.root, tmp_path / "alone"))
    with pytest.raises(RefusedError, match="written to since"):
        undo_latest(alone)
    assert files_of(places.root) == before
    assert files_of(alone.root) == before
