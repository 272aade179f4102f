"""What became of the damage: what is lost for good, what was kept and how."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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
    """

    lost: list[LostRecord] = field(default_factory=list)
    mended: Counter[RepairedRecord] = field(default_factory=Counter)
    mendable: Counter[RepairedRecord] = field(default_factory=Counter)
    donated_bytes: int = 0
    unknown_bytes: int = 0
    ranges: tuple[DamagedRange, ...] = ()

    @property
    def lost_messages(self) -> int:
        """Messages that are lost for good, as far as anything tells of them."""
        return sum(record.messages for record in self.lost)
