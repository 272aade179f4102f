"""Plans as data: what is shown and saved of them, and when a saved one no longer fits."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import RefusedError, UnreadableError
from rmqtool.repair.machine.digest import BLOCK, BuiltFile, digest_of, digest_of_content
from rmqtool.repair.machine.plan import ForecastAfter, Loss, Plan, demand_same, read_saved
from rmqtool.repair.machine.steps import create_file, remove_file, write_range
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.store.source import BytesSource, FilePart, FileSource, Literal, Zeros, read_range
from rmqtool.store.view import DirectoryView
from tests.repair.small_stores import LOG, QUEUE, recovery

FIELDS = [
    "command",
    "store_fingerprint",
    "broker_version",
    "steps",
    "loss",
    "kept_beyond_broker",
    "notes",
    "floor",
    "forecast_now",
    "possible_versions",
    "forecast_after",
    "abort_stays",
    "copied_files",
    "remaining",
    "disk_needed_bytes",
]


def test_the_json_has_the_names_of_the_contract(places: StorePaths, tmp_path: Path) -> None:
    plan = replace(
        recovery(places, tmp_path),
        loss=Loss(2, 300, {"TopicA": 2}),
        kept_beyond_broker={"TopicA": 3, "TopicB": 2},
        forecast_after={"5.5.0": ForecastAfter(starts=True, lost=0)},
    )
    said = plan.to_json()
    assert list(said) == FIELDS
    assert {tuple(step) for step in said["steps"]} == {
        ("action", "file", "file_position", "length", "before", "after", "why")
    }
    assert {step["action"] for step in said["steps"]} == {"write", "replace", "create", "remove"}
    assert said["loss"] == {"messages": 2, "bytes": 300, "by_topic": {"TopicA": 2}, "without_log": 0}
    assert said["kept_beyond_broker"] == {"messages": 5, "by_topic": {"TopicA": 3, "TopicB": 2}}
    assert said["forecast_after"] == {"5.5.0": {"starts": True, "lost": 0, "messages_without_log": 0}}
    assert json.loads(json.dumps(said)) == said


def test_a_saved_plan_fits_until_something_changes(places: StorePaths, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(recovery(places, tmp_path).to_json()))
    demand_same(recovery(places, tmp_path), read_saved(saved))
    os.utime(places.root / QUEUE)
    with pytest.raises(RefusedError, match="store"):
        demand_same(recovery(places, tmp_path), read_saved(saved))


def test_a_saved_plan_with_other_bytes_does_not_fit(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    saved = tmp_path / "plan.json"
    other = write_range(DirectoryView(places.root), LOG, 150_000, Literal(b"other"), "behind the log end")
    saved.write_text(json.dumps(replace(plan, steps=(plan.steps[0], other, *plan.steps[2:])).to_json()))
    with pytest.raises(RefusedError, match="steps"):
        demand_same(plan, read_saved(saved))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"{", b"\xff\xfe", b"[" * 100_000, b'{"command": 1}'])
def test_what_is_no_saved_plan_is_an_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(text)
    with pytest.raises(UnreadableError):
        read_saved(tmp_path / "plan.json")
    with pytest.raises(UnreadableError):
        read_saved(tmp_path / "missing")


def test_steps_are_planned_on_what_is_there(places: StorePaths) -> None:
    view = DirectoryView(places.root)
    with pytest.raises(UnreadableError):
        create_file(view, QUEUE, Zeros(1), "is there")
    with pytest.raises(UnreadableError):
        remove_file(view, "gone", "is not there")
    with pytest.raises(UnreadableError):
        write_range(view, "gone", 0, Zeros(1), "is not there")


@given(st.binary(max_size=40), st.integers(0, 3 * BLOCK), st.integers(0, 3 * BLOCK), st.binary(max_size=40))
def test_a_digest_tells_contents_apart_and_no_places(first: bytes, start: int, gap: int, last: bytes) -> None:
    content = first + bytes(gap) + last
    alone = digest_of_content(Literal(content))
    shifted = BytesSource("shifted", b"\1" * start + content + b"\2")
    assert digest_of(shifted, start, start + len(content)) == alone
    assert digest_of_content(Literal(content + b"\0")) != alone
    if content:
        changed = bytes([content[0] ^ 1]) + content[1:]
        assert digest_of_content(Literal(changed)) != alone
    if not content.strip(b"\0"):
        assert digest_of_content(Zeros(len(content))) == alone


def test_holes_and_written_zeros_have_one_digest(tmp_path: Path) -> None:
    hole, written = tmp_path / "hole", tmp_path / "written"
    tail = b"end of the file"
    with hole.open("wb") as file:
        file.seek(10 * BLOCK + 17)
        file.write(tail)
    written.write_bytes(bytes(10 * BLOCK + 17) + tail)
    assert digest_of_content(FilePart.whole(hole)) == digest_of_content(FilePart.whole(written))
    with FileSource.open(hole) as first, FileSource.open(written) as second:
        assert digest_of(first, 5, first.size) == digest_of(second, 5, second.size)


@given(st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.sampled_from((b"", b"\0", b"x"))), max_size=4), st.data())
def test_whoever_reads_a_built_file_in_order_knows_its_digest(
    runs: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    content = b"".join(byte * length for length, byte in runs)
    ends = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "built"
        path.write_bytes(content)
        built = BuiltFile.whole(path)
        assert built.known_digest is None
        with closing(built.open()) as source:
            for start, end in pairwise([0, *ends, len(content)]):
                read_range(source, len(content) // 2, 1)  # a look elsewhere is no step on the way
                assert read_range(source, start, end - start) == content[start:end]
        assert built.known_digest == digest_of_content(Literal(content))


def test_a_look_into_a_built_file_does_not_read_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "built").write_bytes(b"x" * 20 * BLOCK)
    built = BuiltFile.whole(tmp_path / "built")
    with closing(built.open()) as source:
        read_range(source, 0, 5 * BLOCK)
        read_range(source, 6 * BLOCK, 14 * BLOCK)
    assert built.known_digest is None
    assert digest_of_content(built) == digest_of_content(Literal(b"x" * 20 * BLOCK)) == built.known_digest


def test_the_digest_is_what_its_description_says() -> None:
    content = bytes(BLOCK) + b"x" * 10
    expected = hashlib.sha256(len(content).to_bytes(8, "big") + BLOCK.to_bytes(8, "big") + b"x" * 10).hexdigest()
    assert digest_of_content(Literal(content)) == f"sparse-sha256:{expected}"


@pytest.mark.parametrize(
    ("now", "after", "refused"),
    [
        (
            ForecastAfter(True, 0),
            ForecastAfter(False, 0, why_not="a size"),
            "would not start after the repair .a size.",
        ),
        (ForecastAfter(True, 1), ForecastAfter(True, 2), "would lose 2 messages after the repair, and 1 without"),
        (ForecastAfter(True, 2), ForecastAfter(True, 2), None),
        (ForecastAfter(False, 0), ForecastAfter(False, 0), None),
        (None, ForecastAfter(False, 0), None),
    ],
)
def test_a_plan_that_does_harm_is_refused(now: ForecastAfter | None, after: ForecastAfter, refused: str | None) -> None:
    plan = Plan("recover", "f", "5.5.0", (), forecast_now=now, forecast_after={"5.5.0": after})
    if refused is None:
        plan.demand_harmless()
        return
    with pytest.raises(RefusedError, match=refused):
        plan.demand_harmless()
