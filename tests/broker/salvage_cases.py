"""Damage to a log of three files, and what a broker serves of it: alone, and after a salvage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.engine.rules.versions import rules_for
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.salvage.plan import Salvage, plan_salvage
from rmqtool.store.directory import Settings, survey
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.view import open_directory
from tests.broker.broker import Answer, Judge, served_places
from tests.broker.files import copy_store


@dataclass(frozen=True)
class Form:
    """How large files and messages of a store are, in bytes; three files of the log hold them all."""

    file_size: int
    body_size: int

    @property
    def config(self) -> dict[str, object]:
        return {
            "mappedFileSizeCommitLog": self.file_size,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 100,
            "maxIndexNum": 400,
        }

    @property
    def settings(self) -> Settings:
        return Settings(commitlog_file_size=self.file_size, index_slot_count=100, index_entry_count=400)


SMALL = Form(65536, 192)
LARGE = Form(2 << 20, 8192)
COUNT = 560
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(frozen=True)
class Healthy:
    """A store as a broker left it.

    Attributes:
        records: (physical offset, size) of every record and blank, in log order.
        messages: physical offset by topic, queue id, queue offset.
    """

    path: Path
    records: tuple[tuple[int, int], ...]
    messages: Mapping[Place, int]
    form: Form = SMALL

    def of_file(self, number: int) -> list[tuple[int, int]]:
        """The records of a file, without its blank."""
        size = self.form.file_size
        found = [each for each in self.records if each[0] // size == number]
        return [each for each in found if sum(each) % size] if number < 2 else found


def written(judge: Judge, path: Path, *, clean: bool, form: Form = SMALL) -> Healthy:
    """560 messages in four queues and three files; without a clean end every broker scans the log from its begin."""
    store = judge.open(path, form.config)
    answers = store.put(*(_message(number, form) for number in range(COUNT)))
    assert {answer["status"] for answer in answers} == {"PUT_OK"}
    store.wait_dispatched()
    read = store.read()
    if clean:
        store.shutdown()
    else:
        store.halt()
        (path / "checkpoint").unlink(missing_ok=True)
    messages = served_places(read)
    assert len(messages) == COUNT
    return Healthy(path, tuple((row[0], row[1]) for row in read["commitLog"]), messages, form)


def _message(number: int, form: Form) -> dict[str, Any]:
    return {
        "topic": f"T{number % 2}",
        "queueId": number // 2 % 2,
        "body": b"%04d" % number * (form.body_size // 4),
        "bornTimestamp": 1_700_000_000_000 + number,
        "properties": {"KEYS": f"key-{number:04d}", "TAGS": "tag", "UNIQ_KEY": f"7F0000011267{number:020X}"},
    }


@dataclass(frozen=True)
class Harm:
    """What is done to a log: byte ranges [start, end) of it, and how.

    `fill`: "zeros", "noise", "flip" (one bit in the middle of each range), "remove" (the file that it is).
    """

    ranges: tuple[tuple[int, int], ...]
    fill: str = "noise"

    def hits(self, start: int, size: int) -> bool:
        return any(begin < start + size and start < end for begin, end in self.ranges)

    def apply(self, path: Path, file_size: int) -> None:
        noise = random.Random(5)
        for begin, end in self.ranges:
            for start in range(begin - begin % file_size, end, file_size):
                place = path / "commitlog" / segment_name(start)
                if self.fill == "remove":
                    place.unlink()
                    continue
                low, high = max(begin, start) - start, min(end, start + file_size) - start
                with place.open("r+b") as file:
                    file.seek((low + high) // 2 if self.fill == "flip" else low)
                    if self.fill == "flip":
                        byte = file.read(1)[0]
                        file.seek(-1, 1)
                        file.write(bytes([byte ^ 4]))
                    else:
                        file.write(bytes(high - low) if self.fill == "zeros" else noise.randbytes(high - low))


def _span(*records: tuple[int, int]) -> tuple[int, int]:
    return records[0][0], sum(records[-1])


def _single(file: int, which: str) -> Callable[[Healthy], Harm]:
    def harm(store: Healthy) -> Harm:
        records = store.of_file(file)
        number = {"first": 0, "middle": len(records) // 2, "last": -1}[which]
        return Harm((_span(records[number]),), "flip" if which == "middle" else "noise")

    return harm


def hole(store: Healthy, length: int) -> Harm:
    """Zeros from the middle of a record of the middle file on."""
    start = store.of_file(1)[70][0] + 100
    return Harm(((start, start + length),), "zeros")


def _across(store: Healthy) -> Harm:
    return Harm((_span(store.of_file(0)[-2], store.of_file(1)[1]),))


def _two(store: Healthy) -> Harm:
    first, second = store.of_file(1), store.of_file(2)
    return Harm((_span(first[20], first[22]), _span(second[10])))


def _middle(store: Healthy) -> tuple[int, int]:
    return store.form.file_size, 2 * store.form.file_size


CASES: Mapping[str, Callable[[Healthy], Harm]] = {
    **{
        f"{which} record of the {name} file": _single(number, which)
        for number, name in enumerate(("first", "middle", "last"))
        for which in ("first", "middle", "last")
    },
    "three records in a row": lambda store: Harm((_span(*store.of_file(1)[50:53]),)),
    "a hole of 4 KiB": lambda store: hole(store, 4096),
    "across a file's end": _across,
    "a file of zeros": lambda store: Harm((_middle(store),), "zeros"),
    "a missing file": lambda store: Harm((_middle(store),), "remove"),
    "two damages": _two,
}


def lost_alone(judge: Judge, store: Healthy, harm: Harm, path: Path) -> int | None:
    """Intact messages that the broker does not serve after its own start; None where it does not start."""
    copy_store(store.path, path)
    harm.apply(path, store.form.file_size)
    report = judge.examine(path, store.form.config, times=0)
    if "served" not in report:
        return None
    found = served_places(report["served"])
    return sum(found.get(place) != at for place, at in intact(store, harm).items())


def intact(store: Healthy, harm: Harm) -> dict[Place, int]:
    sizes = dict(store.records)
    return {place: at for place, at in store.messages.items() if not harm.hits(at, sizes[at])}


def salvaged(path: Path, form: Form, version: str, staging: Path) -> Salvage:
    """Salvage in place, as the command does."""
    places = StorePaths(path)
    before = fingerprint(places)
    staging.mkdir()
    made = plan_salvage(survey(open_directory(path), form.settings), rules_for(version), staging)
    apply_plan(Plan("salvage", before, version, made.steps), places)
    return made


def kept(store: Healthy, harm: Harm, made: Salvage) -> dict[Place, int]:
    """What has to be served after a salvage: all that is intact, and what was hit and could be mended."""
    given_up = {(lost.topic_name, lost.queue_id, lost.queue_offset) for lost in made.outcome.lost}
    assert not given_up & intact(store, harm).keys()
    return {place: at for place, at in store.messages.items() if place not in given_up}


def assert_serves(read: Answer, store: Healthy, wanted: Mapping[Place, int], *, tombstones: bool = False) -> None:
    """All that is wanted at its old place, and nothing that was never sent but in the place of a lost message."""
    found = served_places(read)
    assert {place: found.get(place) for place in wanted} == wanted
    lost = store.messages.keys() - wanted.keys()
    assert found.keys() <= store.messages.keys()
    for place in lost & found.keys():
        # Who asks for a lost message gets the next one of the queue, which may be new, or a tombstone that can be seen:
        # in the log's first file no unit can be made that nobody reads.
        is_new = found[place] > max(store.messages.values())
        is_passed_over = is_new or found[place] in {at for (*name, _), at in wanted.items() if name == list(place[:2])}
        size = store.form.file_size
        is_own = found[place] // size == store.messages[place] // size
        assert is_passed_over or (is_own and (tombstones or found[place] < size)), place


def without_queues(path: Path) -> None:
    """As after a crash in which all that is derived was lost, so that the broker builds it anew."""
    shutil.rmtree(path / "consumequeue")
    (path / "checkpoint").unlink()
    (path / "abort").touch()
