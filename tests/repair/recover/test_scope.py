"""What `recover` looks at by default: enough to mend what it finds as well as a look at everything, and no more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.append.batch_append import MessageColumns
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.repair.derived.log_window import window_of
from rmqtool.repair.machine.plan import ABORT_NAME, PlannedRepair, view_over
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import open_directory
from tests.repair.golden_repairs import derived_differences
from tests.verify.stores import above_note, verified

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.0")
FILE_SIZE = 1 << 14
MESSAGES = 2000
QUEUES = 4
"""Of which the last one gets no message any more after the first tenth of them."""
BEGAN_MS = 1_700_000_000_000
CONFIG = WriterConfig(
    commitlog_file_size=FILE_SIZE, consumequeue_file_size=600, index_slot_count=50, index_entry_count=200
)
SETTINGS = Settings(
    commitlog_file_size=FILE_SIZE, consumequeue_file_size=600, index_slot_count=50, index_entry_count=200
)
"""What a properties file would say: of little else a store of tiny files tells its sizes."""


@pytest.fixture(scope="module")
def long_stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Stores of many tiny files that ended cleanly, one for each version."""
    folder = tmp_path_factory.mktemp("long")

    def made(version: str) -> Path:
        root = folder / version
        if not root.exists():
            with new_store(root, rules_for(version), CONFIG, lambda: BEGAN_MS) as writer:
                for first in range(0, MESSAGES, 100):
                    assert writer.put_columns(_columns(first, 100)) is not None
        return root

    return made


@pytest.fixture
def crashed(long_stores: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of such a store with `abort` in it."""

    def copied(version: str) -> Path:
        path = tmp_path / "store"
        shutil.copytree(long_stores(version), path)
        (path / ABORT_NAME).write_bytes(b"")
        return path

    return copied


def _columns(first: int, count: int) -> MessageColumns:
    numbers = range(first, first + count)
    times = [BEGAN_MS + number * 100 for number in numbers]
    return MessageColumns(
        topics=["Orders"] * count,
        queue_ids=[number % (QUEUES if number < MESSAGES // 10 else QUEUES - 1) for number in numbers],
        bodies=[b"body %d" % number for number in numbers],
        properties_texts=[b"KEYS\x01key-%d\x02TAGS\x01Tag%d\x02" % (number, number % 3) for number in numbers],
        born_timestamps_ms=times,
        store_timestamps_ms=times,
    )


def store_of(path: Path) -> Store:
    return survey(open_directory(path), SETTINGS)


def recovered(path: Path, version: str, staging: Path, *, full: bool = False) -> tuple[PlannedRepair, Store]:
    """The plan, and the store as it leaves it."""
    staging.mkdir()
    store = store_of(path)
    made = plan_recover(store, rules_for(version), staging, RecoverOptions(full=full))
    return made, survey(view_over(store.view, made.steps), SETTINGS)


def files_of(path: Path, pattern: str) -> list[Path]:
    return sorted(found for found in path.glob(pattern) if found.is_file())


def tear(path: Path) -> None:
    """Cut the last record inside its body."""
    last = files_of(path, "commitlog/*")[-1]
    raw = last.read_bytes().rstrip(b"\0")
    last.write_bytes(raw[:-60].ljust(FILE_SIZE, b"\0"))


def lose_queue(path: Path) -> None:
    shutil.rmtree(path / "consumequeue/Orders/1")


def lose_units(path: Path) -> None:
    """Zeros from a third of a queue on, its later files gone: the pages of a mapped file that never were written."""
    found = files_of(path, "consumequeue/Orders/1/*")
    at = len(found) // 3
    found[at].write_bytes(found[at].read_bytes()[:200].ljust(600, b"\0"))
    for later in found[at + 1 :]:
        later.unlink()


def zero_units(path: Path) -> None:
    """A hole in a queue with units behind it."""
    found = files_of(path, "consumequeue/Orders/1/*")
    middle = found[len(found) // 2]
    raw = middle.read_bytes()
    middle.write_bytes(raw[:200] + bytes(200) + raw[400:])


def zero_units_at_end(path: Path) -> None:
    """A hole right in front of a queue's last units."""
    last = files_of(path, "consumequeue/Orders/1/*")[-1]
    raw = last.read_bytes()
    last.write_bytes(bytes(40) + raw[40:])


def zero_units_of_idle_queue(path: Path) -> None:
    """A hole that a broker's start reads, though the queue's last messages are far below what it reads of the log."""
    before_last = files_of(path, f"consumequeue/Orders/{QUEUES - 1}/*")[-2]
    raw = before_last.read_bytes()
    before_last.write_bytes(raw[:200] + bytes(40) + raw[240:])


def shorten_queue_file(path: Path) -> None:
    found = files_of(path, "consumequeue/Orders/1/*")
    middle = found[len(found) // 2]
    middle.write_bytes(middle.read_bytes()[:400])


def lose_queue_file(path: Path) -> None:
    found = files_of(path, "consumequeue/Orders/1/*")
    found[len(found) // 2].unlink()


def lose_first_queue_file(path: Path) -> None:
    files_of(path, "consumequeue/Orders/1/*")[0].unlink()


def lose_index_files(path: Path) -> None:
    found = files_of(path, "index/*")
    for later in found[len(found) // 2 :]:
        later.unlink()


def shorten_index_file(path: Path) -> None:
    found = files_of(path, "index/*")
    middle = found[len(found) // 2]
    middle.write_bytes(middle.read_bytes()[:-20])


def cut_index_to_a_byte(path: Path) -> None:
    """The only index file, in which the tool looks for what the first entry points to."""
    found = files_of(path, "index/*")
    for other in found[:-1]:
        other.unlink()
    found[-1].write_bytes(b"\x00")


def harm_index_chain(path: Path) -> None:
    """Slots of the last file name other entries."""
    last = files_of(path, "index/*")[-1]
    raw = bytearray(last.read_bytes())
    raw[40:60] = b"\0\0\0\1" * 5
    last.write_bytes(raw)


def shorten_log_file(path: Path) -> None:
    """A file in the middle lacks the zeros behind its end mark."""
    found = files_of(path, "commitlog/*")
    middle = found[len(found) // 2]
    middle.write_bytes(middle.read_bytes()[:-4])


NEAR_END = {"tear": tear, "zero_units_at_end": zero_units_at_end, "harm_index_chain": harm_index_chain}
"""Harm that a broker's start would come across."""
BELOW = {
    found.__name__: found
    for found in (
        lose_queue, lose_units, zero_units_of_idle_queue, shorten_queue_file, lose_queue_file, lose_first_queue_file,
        lose_index_files, shorten_index_file, cut_index_to_a_byte, shorten_log_file,
    )
}  # fmt: skip
"""Harm that begins far below, and shows at the end, or in a name or a length."""
REACHED = (*NEAR_END, "lose_units", "shorten_queue_file", "lose_queue_file", "lose_index_files", "shorten_index_file")
"""Harm whose begin is known, so that not everything has to be looked at."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("harm", [*NEAR_END, *BELOW])
def test_what_is_found_is_mended_as_by_a_look_at_everything(
    crashed: Callable[[str], Path], tmp_path: Path, version: str, harm: str
) -> None:
    path = crashed(version)
    {**NEAR_END, **BELOW}[harm](path)
    bounded, ours = recovered(path, version, tmp_path / "bounded")
    full, theirs = recovered(path, version, tmp_path / "full", full=True)
    assert list(derived_differences(theirs, ours)) == []
    assert [(step.path, step.after) for step in bounded.steps] == [(step.path, step.after) for step in full.steps]
    assert full.begin is None
    if harm in REACHED:
        assert bounded.begin is not None
    assert above_note(verified(ours, version)[1]) == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("harm", NEAR_END)
def test_only_the_end_of_a_long_store_is_looked_at(
    crashed: Callable[[str], Path], tmp_path: Path, version: str, harm: str
) -> None:
    path = crashed(version)
    NEAR_END[harm](path)
    made, _ = recovered(path, version, tmp_path / "staging")
    store = store_of(path)
    assert made.begin is not None
    assert made.begin >= store.commitlog[-4].start
    below = [segment for segment in store.commitlog if segment.start < made.begin]
    for segment in below:  # nothing of them is read, so they may as well be gone
        (path / segment.path).write_bytes(bytes(FILE_SIZE))
    again, _ = recovered(path, version, tmp_path / "again")
    assert [(step.path, step.after) for step in again.steps] == [(step.path, step.after) for step in made.steps]
    (note,) = made.left_out
    assert f"physical offset {made.begin}: {len(below)} files" in note


@pytest.mark.parametrize("version", VERSIONS)
def test_harm_that_nothing_at_the_end_shows_is_left_and_said(
    crashed: Callable[[str], Path], tmp_path: Path, version: str
) -> None:
    path = crashed(version)
    zero_units(path)
    log = files_of(path, "commitlog/*")
    middle = log[len(log) // 3]
    raw = bytearray(middle.read_bytes())
    raw[raw.index(b"body ")] ^= 0xFF
    middle.write_bytes(raw)
    made, ours = recovered(path, version, tmp_path / "staging")
    assert made.damage == ()
    assert made.begin is not None
    assert any(f"the commit log below physical offset {made.begin}" in note for note in made.left_out)
    left_out = {entry.path for entry in window_of(store_of(path), made.begin).left_out}
    assert str(middle.relative_to(path)) in left_out
    assert not left_out & {step.path for step in made.steps}
    assert not ours.has_abort
    full, _ = recovered(path, version, tmp_path / "full", full=True)
    assert [found.id for found in full.damage] == ["commitlog.body-crc-mismatch"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_run_has_nothing_to_do(crashed: Callable[[str], Path], tmp_path: Path, version: str) -> None:
    path = crashed(version)
    tear(path)
    _, ours = recovered(path, version, tmp_path / "staging")
    (tmp_path / "again").mkdir()
    again = plan_recover(ours, rules_for(version), tmp_path / "again", RecoverOptions())
    assert again.steps == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_index_is_begun_where_the_broker_would_begin(
    crashed: Callable[[str], Path], tmp_path: Path, version: str
) -> None:
    path = crashed(version)
    shutil.rmtree(path / "index")
    made, _ = recovered(path, version, tmp_path / "staging")
    assert made.begin is not None
    assert any("rmqtool rebuild --index rebuilds all of it" in note for note in made.notes)
