"""Fills a damaged range without a gap: lost records at their places or packed, bridges over the rest, a blank last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rmqtool.formats.commitlog import BLANK_SIZE_MIN, RECORD_SIZE_MIN
from rmqtool.repair.salvage.damage import DamagedRange
from rmqtool.repair.salvage.lost import Casualties, LostRecord

BRIDGE_MAX: Final = 4 << 20
"""Bytes of one record over what nobody can attribute: older brokers allocate the size of each that they check."""

Least = Callable[[LostRecord | None], int]
"""Bytes that the record in the place of a lost one takes at least; None asks for a bridge."""


@dataclass(frozen=True)
class Piece:
    """Physical offsets [start, end), and what comes there: the stand-in of a lost record, a bridge, or a blank."""

    start: int
    end: int
    lost: LostRecord | None = None
    is_blank: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start


def lay_out(damaged: DamagedRange, casualties: Casualties, least: Least) -> list[Piece] | None:
    """Pieces that lie side by side and fill the range; behind the last piece of the log's last range nothing follows.

    Returns:
        None where the range is too short for a record and no neighbour can be lengthened.
    """
    return _Layout(damaged, casualties, least).run()


class _Layout:
    """One run; see `lay_out`."""

    def __init__(self, damaged: DamagedRange, casualties: Casualties, least: Least) -> None:
        self._damaged, self._casualties, self._least = damaged, casualties, least
        self._waiting = list(casualties.unplaced)
        self._pieces: list[Piece] = []
        self._at = damaged.start

    def run(self) -> list[Piece] | None:
        damaged = self._damaged
        file_end = damaged.file_start + damaged.file_size
        limit = damaged.end if damaged.end < file_end else file_end - BLANK_SIZE_MIN
        for lost in self._casualties.placed:
            start, stop = lost.place
            is_inside = self._at <= start and stop <= (file_end - BLANK_SIZE_MIN if damaged.is_last else limit)
            if is_inside and stop - start >= self._least(lost):
                self._fill(start, self._earlier(lost, start - self._at), to_end=True)
                self._add(stop, lost)
        self._fill(max(self._at, limit), self._waiting, to_end=damaged.end < file_end and not damaged.is_last)
        if damaged.reaches_file_end:
            self._pieces.append(Piece(self._at, damaged.end, is_blank=True))
        return self._joined()

    def _add(self, end: int, lost: LostRecord | None = None) -> None:
        self._pieces.append(Piece(self._at, end, lost))
        self._at = end

    def _earlier(self, lost: LostRecord, room: int) -> list[LostRecord]:
        """Records without a place that come before this one: of its queue the lower offsets, of other queues all."""
        if room < RECORD_SIZE_MIN:
            return []
        queue = (lost.topic, lost.queue_id)
        return [
            each
            for each in self._waiting
            if (each.topic, each.queue_id) != queue or each.queue_offset < lost.queue_offset
        ]

    def _fill(self, end: int, candidates: list[LostRecord], *, to_end: bool) -> None:
        """Pack records that have no place of their own; the last one, or a bridge, takes the rest."""
        taken: list[LostRecord] = []
        at = self._at
        for lost in candidates:
            if at + self._least(lost) > end:
                break
            at += self._least(lost)
            taken.append(lost)
        for number, lost in enumerate(taken):
            is_last = to_end and number == len(taken) - 1 and end - self._at <= BRIDGE_MAX
            self._add(end if is_last else self._at + self._least(lost), lost)
        if taken:
            gone = set(map(id, taken))
            self._waiting = [each for each in self._waiting if id(each) not in gone]
        while to_end and self._at < end:
            self._add(end if end - self._at <= BRIDGE_MAX else self._at + BRIDGE_MAX // 2)

    def _joined(self) -> list[Piece] | None:
        """The pieces, those that are too short for a record given to a neighbour."""
        found: list[Piece] = []
        short: Piece | None = None
        for piece in self._pieces:
            each = piece if short is None else replace(piece, start=short.start)
            short = None
            if each.is_blank or each.length >= self._least(each.lost):
                found.append(each)
            elif found and not found[-1].is_blank:
                found[-1] = replace(found[-1], end=each.end)
            else:
                short = each
        return None if short is not None else found
