"""Files that are rows of one declared structure, or begin with one; `patch` and `evidence` go by it."""

from __future__ import annotations

from typing import Final

from rmqtool.formats import checkpoint, consumequeue, timer
from rmqtool.store.file_kinds import FileKind

UNITS: Final = {
    FileKind.CONSUMEQUEUE: consumequeue.UNIT,
    FileKind.BATCH_CONSUMEQUEUE: consumequeue.BATCH_UNIT,
    FileKind.COMPACTION_QUEUE: consumequeue.BATCH_UNIT,
    FileKind.TIMER_WHEEL: timer.SLOT,
    FileKind.TIMER_LOG: timer.UNIT,
}
"""Units of one format from the first byte to the last."""
SINGLE_UNITS: Final = {FileKind.CHECKPOINT: checkpoint.CHECKPOINT, FileKind.TIMER_CHECK: timer.CHECK}
"""One unit, after which a broker writes nothing."""
