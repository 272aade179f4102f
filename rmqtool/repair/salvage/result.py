"""What became of the damage: what is lost for good, what was kept and how."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.lost_records import LostRecord
from rmqtool.repair.salvage.record_repair import RepairedRecord


@dataclass
class SalvageResult:
    """What became of the damage.

    Attributes:
        lost: records that are given up for good.
        mended: how many records were kept, by how.
        mendable: how many of the lost ones could be kept if a person agreed to it.
        donated_bytes: bytes that came from donors.
        unknown_bytes: damaged bytes of which nobody knows what they held.
        ranges: the damage, as it was found.
        queues: those that lost a message, which are built again in any case.
        left: physical offsets of records whose headers are wrong, and stay as they are.
        notes: sentences for a person.
    """

    lost: list[LostRecord] = field(default_factory=list)
    mended: Counter[RepairedRecord] = field(default_factory=Counter)
    mendable: Counter[RepairedRecord] = field(default_factory=Counter)
    donated_bytes: int = 0
    unknown_bytes: int = 0
    ranges: tuple[DamagedRange, ...] = ()
    queues: list[tuple[str, int]] = field(default_factory=list)
    left: list[int | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: SalvageResult) -> SalvageResult:
        """What both steps came to."""
        return SalvageResult(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def lost_messages(self) -> int:
        """Messages that are lost for good, as far as anything tells of them."""
        return sum(record.messages for record in self.lost)
