"""Random faults in queue files that leave the log alone: units swapped, copied, shifted, in a queue or across two.

The units point to records that are whole, so that whoever believes a queue more than the log is led astray.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, UNIT_SIZE
from tests.repair.salvage.trial import Files, Healthy

UNIT_FAULTS: Final = (
    "swap next",
    "swap near",
    "swap far",
    "swap first and last",
    "swap many",
    "swap blocks",
    "swap between queues",
    "swap same offset",
    "rotate three queues",
    "copy",
    "copy between queues",
    "copy same offset",
    "shift up",
    "shift down",
    "reverse",
    "shuffle",
    "swap files",
)


class UnitAt(NamedTuple):
    """Where a unit lies."""

    path: str
    position: int
    size: int
    queue_offset: int


class Queues:
    """The units of a store's queues that point to a record, and edits of them."""

    def __init__(self, store: Healthy, files: Files) -> None:
        self._files = files
        self.queues: list[list[UnitAt]] = []
        surveyed = store.undamaged
        for queues, size in ((surveyed.queues, UNIT_SIZE), (surveyed.batch_queues, BATCH_UNIT_SIZE)):
            for queue in queues.values():
                units = [
                    UnitAt(segment.path, position, size, (segment.start + position) // size)
                    for segment in queue.segments
                    for position in range(0, segment.size - size + 1, size)
                    if any(files.get(segment.path, b"")[position + 8 : position + 12])
                ]
                if units:
                    self.queues.append(units)

    def raw(self, at: UnitAt) -> bytes:
        return self._files[at.path][at.position : at.position + at.size]

    def write(self, at: UnitAt, raw: bytes) -> None:
        content = self._files[at.path]
        self._files[at.path] = content[: at.position] + raw + content[at.position + at.size :]

    def swap(self, one: UnitAt, other: UnitAt) -> None:
        if one.size == other.size:
            first, second = self.raw(one), self.raw(other)
            self.write(one, second)
            self.write(other, first)

    def swap_files(self, dice: random.Random) -> None:
        """Give the contents of one file of a queue to another."""
        paths = sorted({at.path for units in self.queues for at in units})
        one, other = dice.choice(paths), dice.choice(paths)
        if len(self._files[one]) == len(self._files[other]):
            self._files[one], self._files[other] = self._files[other], self._files[one]

    def rewrite(self, units: list[UnitAt], raws: list[bytes]) -> None:
        for at, raw in zip(units, raws, strict=True):
            self.write(at, raw)


def faults_at(dice: random.Random, store: Healthy, files: Files, holes: Sequence[tuple[int, int]]) -> list[str]:
    """Up to three wrong units of records that lie in holes [start, end) of the log; what was done."""
    queues = Queues(store, files)
    hit = [
        (units, number)
        for units in queues.queues
        for number, unit in enumerate(units)
        if any(start <= int.from_bytes(queues.raw(unit)[:8], "big") < end for start, end in holes)
    ]
    done: list[str] = []
    for _ in range(dice.choice((1, 1, 2, 3)) if hit else 0):
        units, number = dice.choice(hit)
        unit, raws = units[number], [queues.raw(each) for each in units]
        place, size = int.from_bytes(raws[number][:8], "big"), int.from_bytes(raws[number][8:12], "big")
        kind = dice.choice(("size", "size", "up", "down", "place"))
        if kind == "size":
            size = dice.choice((size + 4096, size + 20, max(0, size - 20), 100, size ^ (1 << dice.randrange(14))))
        elif kind == "place":
            place = max(0, place + dice.choice((20, -20, 4096, -4096, 1, 300, -300)))
        else:
            first = max(0, number - dice.randrange(6))
            moved = [*raws[first + 1 :], bytes(unit.size)] if kind == "up" else [raws[first], *raws[first:-1]]
            queues.rewrite(units[first:], moved)
            done.append(f"{kind} from {first} in {unit.path}")
            continue
        queues.write(unit, place.to_bytes(8, "big") + size.to_bytes(4, "big") + queues.raw(unit)[12:])
        done.append(f"{kind} of {unit.queue_offset} in {unit.path}: {place}, {size}")
    return done


def unit_fault(dice: random.Random, store: Healthy, files: Files, kind: str | None = None) -> str:
    """Do one thing to the queues; what was done."""
    queues = Queues(store, files)
    kind = kind or dice.choice(UNIT_FAULTS)
    if not queues.queues:
        return "none"
    units = dice.choice(queues.queues)
    if kind.startswith("swap"):
        _swap(dice, queues, units, kind)
    elif kind.startswith("rotate") or "between" in kind or "same offset" in kind:
        _across(dice, queues, units, kind)
    else:
        _within(dice, queues, units, kind)
    return f"{kind} in {units[0].path}"


def _swap(dice: random.Random, queues: Queues, units: list[UnitAt], kind: str) -> None:
    count = len(units)
    match kind:
        case "swap next" | "swap near" | "swap far":
            distance = {"next": 1, "near": 4, "far": dice.randrange(1, count) if count > 1 else 1}[kind.split()[1]]
            if count > distance:
                at = dice.randrange(count - distance)
                queues.swap(units[at], units[at + distance])
        case "swap first and last":
            queues.swap(units[0], units[-1])
        case "swap many":
            for _ in range(dice.randrange(2, 6)):
                queues.swap(dice.choice(units), dice.choice(units))
        case "swap blocks":
            length = dice.randrange(1, 5)
            if count >= 2 * length:
                at = dice.randrange(count - 2 * length + 1)
                for number in range(length):
                    queues.swap(units[at + number], units[at + length + number])
        case "swap files":
            queues.swap_files(dice)
        case _:
            _across(dice, queues, units, kind)


def _across(dice: random.Random, queues: Queues, units: list[UnitAt], kind: str) -> None:
    others = dice.sample(queues.queues, min(2, len(queues.queues)))
    if "same offset" in kind or kind.startswith("rotate"):
        number = dice.randrange(len(units))
        ring = [units, *(other for other in others if other is not units and len(other) > number)]
        chosen = [queue[number] for queue in ring if queue[0].size == units[0].size]
    else:
        chosen = [dice.choice(units), *(dice.choice(other) for other in others if other[0].size == units[0].size)]
    if kind.startswith("copy"):
        for target in chosen[1:]:
            queues.write(target, queues.raw(chosen[0]))
        return
    if not kind.startswith("rotate"):
        chosen = chosen[:2]
    raws = [queues.raw(at) for at in chosen]
    queues.rewrite(chosen, raws[1:] + raws[:1])


def _within(dice: random.Random, queues: Queues, units: list[UnitAt], kind: str) -> None:
    raws = [queues.raw(at) for at in units]
    at = dice.randrange(len(units))
    match kind:
        case "copy":
            raws[at] = dice.choice(raws)
        case "shift up":
            raws = raws[:at] + raws[at + 1 :] + [bytes(units[0].size)]
        case "shift down":
            raws = [*raws[:at], raws[at], *raws[at:-1]]
        case "reverse":
            stop = min(len(raws), at + dice.randrange(2, 9))
            raws[at:stop] = raws[at:stop][::-1]
        case "shuffle":
            stop = min(len(raws), at + dice.randrange(2, 30))
            raws[at:stop] = dice.sample(raws[at:stop], stop - at)
    queues.rewrite(units, raws)
