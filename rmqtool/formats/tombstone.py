"""Replacement of a lost message by a repair: a record in the log, and a unit in its queue that nobody can read.

No broker writes either, and every one skips both: see the section "What a repair leaves" of docs/salvage.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmqtool.quantities import JAVA_LONG_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOMBSTONE: Final = int.from_bytes(b"RMQTOMBS", "big")
"""Stands as prepared transaction offset in a record that a repair wrote; brokers ask for it in half messages only."""
TOMBSTONE_TAG: Final = "RMQTOOL_LOST"
"""Tag of a tombstone, where there is room for it: consumers who subscribe by tag do not receive it."""
TOMBSTONE_TOPIC: Final = "RMQTOOL_LOST"
"""Topic of records that stand in no queue, and the one to which a lost delayed message is delivered."""

DEAD_SIZE: Final = 16
"""Bytes to which a dead unit points at least."""
DEAD_BEFORE: Final = 8
"""A dead unit begins so many bytes before a log file and reaches into it: no broker reads across files.
The last unit of a queue is longer: it reaches to the end of its tombstone.
"""


def are_dead(units: NDArray[Any], log_file_size: int) -> NDArray[Any]:
    """Mask of the dead units: their records would begin too few bytes before a log file's end."""
    before_file = (units["physical_offset"] + DEAD_BEFORE) % min(log_file_size, JAVA_LONG_MAX) == 0
    is_far = units["physical_offset"] > 0
    dead: NDArray[Any] = before_file & is_far & (units["record_size"] >= DEAD_SIZE) & (units["tags_code"] == 0)
    return dead
