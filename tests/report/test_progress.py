"""Progress: late, at the right rate, with the total that is known, as a line or as JSON objects."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqtool.report.progress import Progress, ProgressForm

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass
class World:
    """A clock and a count of bytes that a test moves on."""

    seconds: float = 100.0
    byte_count: int = 5 * MIB
    stream: io.StringIO = field(default_factory=Terminal)

    def progress(self, form: ProgressForm = ProgressForm.AUTO, **options: Any) -> Progress:
        return Progress(
            "verify", form, lambda: self.byte_count, stream=self.stream, clock=lambda: self.seconds, **options
        )

    def go_on(self, seconds: float, byte_count: int = 0) -> None:
        self.seconds += seconds
        self.byte_count += byte_count

    def line(self) -> str:
        return self.stream.getvalue().rpartition("\r\x1b[K")[2]

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_run_of_less_than_a_second_shows_nothing() -> None:
    world = World()
    progress = world.progress()
    world.go_on(0.9, MIB)
    progress.tick()
    assert world.stream.getvalue() == ""
    world.go_on(0.2)
    progress.tick()
    assert world.line() == "verify… 1.0 MiB read, 930.9 KiB/s, 1 s"


def test_a_question_is_not_covered_however_long_a_person_thinks() -> None:
    world = World()
    progress = world.progress()
    world.go_on(2, MIB)
    progress.tick()
    with progress.paused():
        world.stream.write("How large? ")
        world.go_on(60)
        progress.tick()
        assert world.line() == "How large? "
    world.go_on(0.5)
    progress.tick()
    assert world.line() == "How large? "
    world.go_on(2, MIB)
    progress.tick()
    assert world.line().startswith("verify…")


def test_the_rate_is_that_of_the_last_seconds_and_the_rest_follows_from_it() -> None:
    world = World()
    progress = world.progress()
    progress.show(0, 1000 * MIB)
    for _ in range(20):
        world.go_on(1, 10 * MIB)
        progress.tick()
    assert world.line() == "verify… 20 % of 1000.0 MiB, 10.0 MiB/s, 80 s left"
    for _ in range(11):
        world.go_on(1, 40 * MIB)
        progress.tick()
    assert "40.0 MiB/s, 9 s left" in world.line()


def test_a_report_corrects_what_was_read_and_what_is_done_never_falls() -> None:
    world = World()
    progress = world.progress(ProgressForm.JSON)
    progress.show(0, 100 * MIB)
    world.go_on(2, 30 * MIB)
    progress.tick()
    progress.show(20 * MIB, 100 * MIB)
    world.go_on(2, 5 * MIB)
    progress.tick()
    world.go_on(2, 500 * MIB)
    progress.tick()
    assert [state["done_bytes"] // MIB for state in world.objects()] == [30, 30, 100]
    assert {state["total_bytes"] for state in world.objects()} == {100 * MIB}


def test_a_total_is_asked_for_only_once_it_is_shown() -> None:
    asked: list[int] = []
    world = World()
    progress = world.progress(total=lambda: asked.append(1) or 8 * MIB)
    assert not asked
    world.go_on(4, 2 * MIB)
    progress.tick()
    world.go_on(4, 2 * MIB)
    progress.tick()
    assert asked == [1]
    assert world.line() == "verify… 50 % of 8.0 MiB, 512.0 KiB/s, 8 s left"


def test_the_first_percent_promises_no_end() -> None:
    world = World()
    progress = world.progress(ProgressForm.JSON)
    progress.show(0, 1000 * MIB)
    world.go_on(2, MIB)
    progress.tick()
    world.go_on(2, 99 * MIB)
    progress.tick()
    assert [state["remaining_seconds"] for state in world.objects()] == [None, 36]


def test_tasks_and_versions_are_counted_by_reports_alone() -> None:
    world = World()
    progress = world.progress(unit="task")
    progress.show(3, 12)
    world.go_on(90, MIB)
    progress.tick()
    assert world.line().startswith("verify… 3 of 12 tasks, ")
    assert world.line().endswith("4 min left")


def test_output_takes_the_line_and_progress_comes_back_later() -> None:
    world = World()
    progress = world.progress()
    world.go_on(2)
    progress.tick()
    progress.hide()
    assert world.stream.getvalue().endswith("\r\x1b[K")
    written = len(world.stream.getvalue())
    world.go_on(0.5)
    progress.tick()
    assert len(world.stream.getvalue()) == written
    world.go_on(0.6)
    progress.tick()
    assert len(world.stream.getvalue()) > written


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_a_line_fits_its_terminal(width: int) -> None:
    world = World()
    progress = world.progress(width=width)
    progress.next("a phase with a name that is long enough to fill a line of most terminals " * 3)
    world.go_on(5000, MIB)
    progress.tick()
    assert 0 < len(world.line()) < width


def test_programs_get_objects_and_a_last_one() -> None:
    world = World()
    world.stream = io.StringIO()
    with world.progress(ProgressForm.JSON) as progress:
        progress.show(4, 4)
    (state,) = world.objects()
    assert state == {
        "type": "progress",
        "phase": "verify",
        "done_bytes": 4,
        "total_bytes": 4,
        "read_bytes": 0,
        "rate_bytes_per_second": None,
        "elapsed_seconds": 0.0,
        "remaining_seconds": 0,
        "finished": True,
    }
    with pytest.raises(KeyboardInterrupt), world.progress(ProgressForm.JSON):
        raise KeyboardInterrupt
    assert world.objects()[-1]["finished"] is False


def test_without_a_terminal_nothing_is_shown() -> None:
    world = World()
    world.stream = io.StringIO()
    with world.progress() as progress:
        world.go_on(10)
        progress.show(1, 2)
    assert world.stream.getvalue() == ""
