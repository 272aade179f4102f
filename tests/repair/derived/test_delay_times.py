"""The delays with which units of delayed messages are written, where the broker's are known and where they are not."""

from __future__ import annotations

from pathlib import Path

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.sides.delays import shown_delays
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

GOLDEN = "5.5.0-delay"
LEVELS = "1s 2s 10m 1h"
"""Of the broker that wrote it."""
OPTIONS = ("--broker-version", "5.5.0", "--dry-run")


def files(path: Path) -> list[Path]:
    return sorted((path / "consumequeue/SCHEDULE_TOPIC_XXXX").glob("*/*"))


def conf(folder: Path, levels: str) -> tuple[object, ...]:
    path = folder / "broker.conf"
    path.write_text(f"messageDelayLevel={levels}\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=600\n")
    return "--broker-conf", path


def test_the_queues_show_the_delays(golden: Unpacked) -> None:
    with open_reader(survey(open_directory(golden(GOLDEN))), rules_for("5.5.0")) as reader:
        assert shown_delays(reader) == dict(enumerate(parse_delay_levels(LEVELS), 1))


def test_queues_keep_the_delays_that_they_show(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    before = [file.read_bytes() for file in files(path)]
    assert rmqtool("rebuild", path, "--queues", *OPTIONS).code == 0  # nothing to do
    there = rmqtool("convert", path, "--queues", "rocksdb", "--broker-version", "5.5.0", "--yes")
    assert (there.code, "3600 s, as its queue shows" in " ".join(there.out.split())) == (0, True), there.err
    back = rmqtool(
        "convert", path, "--queues", "file", "--queue-file-size", "600", "--broker-version", "5.5.0", "--yes"
    )
    assert (back.code, "3600 s, as its queue shows" in " ".join(back.out.split())) == (0, True), back.err
    assert [file.read_bytes() for file in files(path)] == before


def test_a_plan_names_delays_that_differ_from_those_of_the_queues(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(GOLDEN)
    text = "delay level 3 shows a delay of 600 s; it is written with 3 s"
    plan = rmqtool("rebuild", path, "--queues", *OPTIONS, *conf(tmp_path, "1s 2s 3s"))
    assert (plan.code, text in " ".join(plan.out.split())) == (3, True)


def test_a_plan_names_delays_that_nothing_shows(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(GOLDEN)
    for file in files(path):
        file.unlink()
    plan = rmqtool("rebuild", path, "--queues", *OPTIONS)
    assert (plan.code, "nothing shows messageDelayLevel" in " ".join(plan.out.split())) == (3, True)
    given = rmqtool("rebuild", path, "--queues", *OPTIONS, *conf(tmp_path, LEVELS))
    assert (given.code, "delay level" in given.out) == (3, False)
