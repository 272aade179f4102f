"""What a repair puts in the place of a lost message: a record in the log, and a unit in its queue that nobody can read.

No broker writes either, and every one passes over both: see the section "What a repair leaves" of docs/salvage.md.
"""

from __future__ import annotations

from typing import Final

TOMBSTONE: Final = int.from_bytes(b"RMQTOMBS", "big")
"""Stands as prepared transaction offset in a record that a repair wrote; brokers ask for it in half messages only."""
TOMBSTONE_TAG: Final = "RMQTOOL_LOST"
"""Tag of a tombstone, where there is room for it: consumers who subscribe by tag do not receive it."""
TOMBSTONE_TOPIC: Final = "RMQTOOL_LOST"
"""Topic of records that stand in no queue, and the one to which a lost delayed message is delivered."""

DEAD_SIZE: Final = 16
DEAD_BEFORE: Final = 8
"""A dead unit begins so many bytes in front of a log file and reaches into it: no broker reads across files."""
