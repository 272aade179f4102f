"""Files of zeros after the log's end: named, forecast, and removed, so that the log goes on where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.plan import Plan, view_over
from rmqtool.repair.recover.log_steps import tail_steps
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests.dump.test_hostile import record
from tests.repair.salvage.trial import Healthy, flaws, healthy, salvaged
from tests.verify.stores import above_note, verified

SIZE = 4096
ODD = [(1, 2, 3), (1, 2, 3, 4), (1, 3), (2,), (2, 3), (2, 3, 4), (1, 3, 5)]


def _with_zeros(store: Healthy, numbers: tuple[int, ...], *, is_crashed: bool = False) -> dict[str, bytes]:
    files = dict(store.files)
    last = store.undamaged.commitlog[-1]
    for number in numbers:
        files[f"commitlog/{last.start + number * SIZE:020d}"] = bytes(SIZE)
    if is_crashed:
        files["abort"] = b"1"
    return files


def _recovered(store: Store, version: str, folder: Path) -> Store:
    options = RecoverOptions(BuildOptions(compiled=False), threads=1)
    recovery = plan_recover(store, rules_for(version), folder, options)
    assert not recovery.loss.messages
    plan = Plan("recover", "", version, recovery.steps)
    plan.check(("commitlog",))
    return survey(view_over(store.view, plan.steps), store.settings)


@pytest.mark.parametrize("numbers", [(), (1,), (1, 2)])
def test_what_a_crash_leaves_is_no_finding(numbers: tuple[int, ...]) -> None:
    store = healthy("tiny", "5.5.0")
    assert not above_note(verified(store.store(_with_zeros(store, numbers)), "5.5.0")[1])


def test_the_next_file_after_a_short_one_is_no_finding() -> None:
    store = healthy("tiny", "5.5.0")
    files = _with_zeros(store, (1,))
    last = store.log_files[-1]
    files[last] = files[last].rstrip(b"\0") + bytes(8)
    findings = {each.id for each in verified(store.store(files), "5.5.0")[1]}
    assert "commitlog.wrong-file-size" in findings
    assert "commitlog.file-after-end" not in findings


@pytest.mark.parametrize("is_crashed", [False, True], ids=["", "abort"])
@pytest.mark.parametrize("numbers", ODD)
def test_more_is_named_and_removed(tmp_path: Path, numbers: tuple[int, ...], *, is_crashed: bool) -> None:
    store = healthy("tiny", "5.5.0")
    damaged = store.store(_with_zeros(store, numbers, is_crashed=is_crashed))
    summary, findings = verified(damaged, "5.5.0")
    assert {each.id for each in findings if each.id.startswith("commitlog.")} == {"commitlog.file-after-end"}
    assert summary.complete
    recovered = _recovered(damaged, "5.5.0", tmp_path)
    assert [each.path for each in recovered.commitlog] == store.log_files
    assert not above_note(verified(recovered, "5.5.0")[1])


@pytest.mark.parametrize("numbers", ODD)
def test_salvage_makes_no_file_there(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    store = healthy("tiny", "5.5.0")
    found = salvaged(store.store(_with_zeros(store, numbers)), "5.5.0", tmp_path)
    assert [each.path for each in found.after.commitlog] == store.log_files
    assert flaws(found, store.content, "5.5.0", tmp_path, fits=store.readers) == []


@pytest.mark.parametrize(
    ("version", "numbers", "is_crashed", "misplaces"),
    [
        ("4.4.0", (1, 2, 3), False, True),
        ("4.9.7", (1, 2, 3), False, True),
        ("4.9.7", (1, 3, 5), False, True),
        ("5.3.1", (1, 2, 3, 4), False, True),
        ("4.9.7", (1, 2), False, False),
        ("4.9.7", (1, 2, 3), True, False),
        ("5.3.3", (1, 2, 3), False, False),
        ("5.5.1", (1, 2, 3), False, False),
    ],
)
def test_the_forecast_says_where_new_messages_are_lost(
    version: str, numbers: tuple[int, ...], *, is_crashed: bool, misplaces: bool
) -> None:
    store = healthy("tiny", "4.9.7")
    told = forecast_store(store.store(_with_zeros(store, numbers, is_crashed=is_crashed)), rules_for(version))
    assert told.starts
    assert told.misplaces_new_messages is misplaces


@pytest.mark.parametrize("is_crashed", [False, True], ids=["", "abort"])
@pytest.mark.parametrize("length", [1, SIZE // 2, SIZE - 1])
@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3)])
def test_a_next_file_of_the_wrong_length_is_removed_too(
    tmp_path: Path, numbers: tuple[int, ...], length: int, *, is_crashed: bool
) -> None:
    store = healthy("tiny", "5.5.0")
    files = _with_zeros(store, numbers, is_crashed=is_crashed)
    last = max(path for path in files if path.startswith("commitlog/"))
    files[last] = bytes(length)
    recovered = _recovered(store.store(files), "5.5.0", tmp_path)
    assert not above_note(verified(recovered, "5.5.0")[1])


@pytest.mark.parametrize("length", [1, SIZE // 2])
def test_a_last_file_that_was_cut_to_nothing_is_removed(tmp_path: Path, length: int) -> None:
    store = healthy("tiny", "5.5.0")
    files = dict(store.files)
    last = store.log_files[-1]
    files[last] = files[last][:length]
    files["abort"] = b"1"
    options = RecoverOptions(BuildOptions(compiled=False), full=True, threads=1, cut_at_damage=True)
    recovery = plan_recover(store.store(files), rules_for("5.5.0"), tmp_path, options)
    plan = Plan("recover", "", "5.5.0", recovery.steps)
    plan.check(("commitlog",))
    recovered = survey(view_over(store.store(files).view, plan.steps), store.settings)
    assert "commitlog.wrong-file-size" not in above_note(verified(recovered, "5.5.0")[1])


@pytest.mark.parametrize(("size", "removed"), [(50_000, 0), (65_536, 1)])
def test_the_only_file_that_shows_the_size_stays(tmp_path: Path, size: int, removed: int) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    content = record(b"one")
    (directory / f"{0:020d}").write_bytes(content.ljust(size, b"\0"))
    (directory / f"{size:020d}").write_bytes(bytes(size))
    store = survey(open_directory(tmp_path))
    assert store.commitlog_file_size == size
    assert len(list(tail_steps(store, len(content), "zeros"))) == removed
