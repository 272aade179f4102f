"""A queue while a broker loads and starts: its files, its end, and the records that count as entered.

Broker: `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`, `#correctMinOffset`, and the same of `BatchConsumeQueue`.
"""

from __future__ import annotations

from typing import Final

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd, QueueWriter
from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.loaded_files import (
    BLOCK_UNITS,
    FILES_EXAMINED,
    NO_ODD_LENGTHS,
    LoadedFiles,
    minimum_position,
)
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN, PLAIN_UNITS, whole_units
from rmqtool.engine.rules.broker_rules import BrokerRules, MinOffsetSearch
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.forecast.load import LoadedQueue, LoadFailure
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, FILLER_UNIT, UNIT_SIZE, unit_format
from rmqtool.store.directory import Segment
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.overlay import Overlay
from rmqtool.store.view import Entry, EntryKind

NOTHING_ENTERED: Final = -1


class QueueState:
    """One queue of either kind; positions count bytes of its stream. A store may have a million of them.

    Attributes:
        loaded: its files up to its end, those made by the simulation too.
        physical_end: broker's maxPhysicOffset, up to where records count as entered; -1 at first.
        minimum: the first unit that counts as readable (broker's minLogicOffset); of no meaning for a batch queue.
        known_maximum: the highest end in queue offsets that the queue had meanwhile.
        enters_in_place: whether all that was entered stands at its own queue offset, and nothing was cut since.
        extension: the files that its addresses lead to; None without, or where the broker does not look at them.
    """

    __slots__ = (
        "_directory", "_overlay", "_own_files", "enters_in_place", "extension", "is_batch", "known_maximum", "loaded",
        "minimum", "physical_end", "queue_id", "rules", "topic",
    )  # fmt: skip

    def __init__(
        self, queue: LoadedQueue, file_size: int, overlay: Overlay, files: OpenFiles, rules: BrokerRules
    ) -> None:
        """`files` are those of the overlay."""
        self.topic = queue.topic
        self.queue_id = queue.queue_id
        self.is_batch = queue.is_batch
        self.loaded = LoadedFiles(queue.segments, file_size, BATCH_UNITS if queue.is_batch else PLAIN_UNITS, files)
        self.physical_end = NOTHING_ENTERED
        self.minimum = 0
        self.known_maximum = 0
        self.enters_in_place = not queue.is_batch
        self.extension: QueueExtension | None = None
        self._directory = queue.directory
        self._overlay = overlay
        self.rules = rules
        self._own_files: tuple[str, ...] = ()
        """Files that this start has made, which hold what it has entered and nothing else."""

    def recover(self) -> None:
        """Find the end from the third-last file on; files after an invalid unit are unlinked."""
        loaded = self.loaded
        if not loaded.segments:
            return
        last_unit = loaded.recover(lambda segment: loaded.known_units(segment).length)
        if last_unit is not None:
            self.physical_end = loaded.physical_end(*last_unit, self.rules)
        for segment in [segment for segment in loaded.segments if segment.start > loaded.end]:
            self._drop(segment)  # a file of a wrong name may stand after them, and end the queue
        # Each file is read up to the place that the end has in a file, whatever its own name says.
        size, segments = loaded.file_size, loaded.segments
        lengths = [loaded.end % size if loaded.end < segment.start + size else size for segment in segments]
        if lengths:
            loaded.end = segments[-1].start + lengths[-1]
        odd = {
            segment.path: length
            for segment, length in zip(segments, lengths, strict=True)
            if length != min(size, loaded.end - segment.start)
        }
        loaded.odd_lengths = odd or NO_ODD_LENGTHS
        self.known_maximum = max(self.known_maximum, self.maximum())

    def recover_extension(self) -> None:
        """Find the end of the queue's extension.

        Raises:
            LoadFailure: a unit leads out of it.
        """
        if self.extension is not None:
            why_not = self.extension.load()
            if why_not is not None:
                raise LoadFailure(why_not)
            self._cut_extension()

    def _cut_extension(self) -> None:
        """End the extension after the unit that the last address among the last units leads to."""
        if self.extension is None:
            return
        import numpy as np

        for segment in reversed(self.loaded.segments[-FILES_EXAMINED:]):
            raw = whole_units(self.loaded.read(segment, 0, self.loaded.length(segment)), UNIT_SIZE)
            codes = np.frombuffer(raw, unit_format(is_batch=False).dtype)["tags_code"]
            addresses = codes[codes <= EXTENSION_ADDRESS_MAX]
            if addresses.size:
                why_not = self.extension.cut(int(addresses[-1]))
                if why_not is not None:
                    raise LoadFailure(f"{self._directory}: in its extension, {why_not}")
                return

    def put(self, entries: QueueEntries) -> None:
        """Enter records of the log, by the rules of the broker's put."""
        writer, size = self._writer(), self.loaded.file_size
        before = writer.end
        if isinstance(writer, BatchQueueWriter):
            writer.put(entries)
        else:
            odd = writer.ignored + writer.misplaced
            writer.put(entries)
            self.enters_in_place &= writer.ignored + writer.misplaced == odd
        after = writer.end
        self.loaded.end, self.physical_end = after.end, after.physical_offset
        if self.extension is not None:
            self.extension.written += int(entries.own.sum())  # also where the queue skips a record
        if after.last_start is None or after.last_start == before.last_start:
            return
        if before.last_start is not None:
            start = before.last_start + size
        elif self.is_batch:
            start = 0
        else:
            assert writer.begin is not None, "it created the first file"
            self.minimum = writer.begin
            start = self.minimum - self.minimum % size
        for first_byte in range(start, after.last_start + 1, size):
            path = f"{self._directory}/{segment_name(first_byte)}"
            self.loaded.segments.append(Segment(Entry(path, EntryKind.FILE, size), first_byte))
            self._own_files += (path,)

    def truncate(self, log_end: int) -> None:
        """Cut the queue at the log's end: the last file is read again, so old units after the end come back."""
        self.known_maximum = max(self.known_maximum, self.maximum())
        loaded, own_files, self._own_files = self.loaded, frozenset(self._own_files), ()
        end_before = loaded.end
        entered_end = end_before if self._is_entered_below(log_end) else None
        self.physical_end = log_end
        kept = dict(zip([segment.path for segment in loaded.segments], loaded.lengths(), strict=True))
        while loaded.segments:
            last = loaded.segments[-1]
            if last.path in loaded.odd_lengths:
                others = {path: length for path, length in loaded.odd_lengths.items() if path != last.path}
                loaded.odd_lengths = others
            loaded.end = last.start + loaded.file_size
            if loaded.physical_offset_at(last, 0) < log_end:
                if last.path in own_files and entered_end is not None:
                    # Of a file that was made for a record which then was no new one, the first unit stays all the same.
                    count = max(1, (entered_end - last.start) // loaded.kind.size)
                else:
                    count = self._accepted_units(last, log_end)
                self.physical_end = loaded.physical_end(last, (count - 1) * loaded.kind.size, self.rules)
                loaded.end = last.start + count * loaded.kind.size
                odd = {  # only the last file is cut, whatever its name says
                    segment.path: kept[segment.path]
                    for segment in loaded.segments[:-1]
                    if loaded.length(segment) != kept[segment.path]
                }
                loaded.odd_lengths = {**loaded.odd_lengths, **odd} if odd else loaded.odd_lengths
                self._cut_extension()
                self.enters_in_place &= loaded.end >= end_before
                return
            self._drop(last)
        loaded.end, self.enters_in_place = 0, False

    def _is_entered_below(self, log_end: int) -> bool:
        """True if all that was entered last is below the log's end, for a queue whose units rise."""
        starts_count = self.rules.queue_end_is_record_start
        return not self.is_batch and self.physical_end + (1 if starts_count else 0) <= log_end

    def destroy(self) -> None:
        """Unlink all files, as a broker does that finds no log."""
        while self.loaded.segments:
            self._drop(self.loaded.segments[-1])
        self.loaded.end, self.physical_end, self.minimum = 0, NOTHING_ENTERED, 0
        self.enters_in_place = False

    def correct_minimum(self, log_minimum: int) -> None:
        """Look for the first unit that does not lie below the log, in the first file only.

        Raises:
            LoadFailure: the broker asks for a unit before a file's start, and gives up.
        """
        if self.is_batch or not self.loaded.segments:
            return
        last = self.loaded.segments[-1]
        asks_last_unit = self.rules.min_offset_search is MinOffsetSearch.BINARY and self.minimum < self.loaded.end
        if asks_last_unit and not self.loaded.length(last) and not self.rules.min_offset_survives_short_last_file:
            raise LoadFailure(f"{last.path}: no unit in it, and the broker asks for its last one")

        def fail() -> None:
            raise LoadFailure(f"{last.path}: the queue ends within a unit, and the search for its first one has no end")

        self.minimum = minimum_position(self.loaded, self.rules, log_minimum, self.minimum, on_endless=fail)

    def queue(self, log_minimum: int, extension: QueueExtension | None = None) -> Queue:
        """The queue as it is now, for the engine's pulls."""
        if self.is_batch:
            return BatchQueue(self.topic, self.queue_id, self.loaded, self.rules, log_minimum)
        return FileQueue(self.topic, self.queue_id, self.loaded, self.rules, log_minimum, extension, self.minimum)

    def bounds(self, log_minimum: int) -> tuple[int, int]:
        """Queue offset of the first message that counts, and the one after the last."""
        if not self.is_batch:
            return self.minimum // UNIT_SIZE, self.loaded.end // UNIT_SIZE
        queue = self.queue(log_minimum)
        return queue.min_queue_offset, queue.max_queue_offset

    def filler_units(self) -> int:
        """Units without a message at the start of the first file."""
        loaded = self.loaded
        if self.is_batch or not loaded.segments:
            return 0
        first = loaded.segments[0]
        if (known := loaded.noted_units(first)) is not None and known.length and known.first:
            return 0
        count, filler = 0, PLAIN.pack(*FILLER_UNIT)
        while block := whole_units(loaded.read(first, count * UNIT_SIZE, BLOCK_UNITS * UNIT_SIZE), UNIT_SIZE):
            units = len(block) // UNIT_SIZE
            if block == filler * units:
                count += units
                continue
            return count + next(at for at in range(units) if block[at * UNIT_SIZE :][:UNIT_SIZE] != filler)
        return count

    def maximum(self) -> int:
        """Queue offset after the last message."""
        return self.queue(0).max_queue_offset if self.is_batch else self.loaded.end // UNIT_SIZE

    def _writer(self) -> QueueWriter | BatchQueueWriter:
        """A writer that continues at the end; made for each call, as keeping one for each queue takes memory."""
        last, size = self.loaded.last, self.loaded.file_size
        start, path = (last.start, last.path) if last is not None else (None, None)
        end = QueueEnd(start, self.loaded.end, self.physical_end, path)
        if self.is_batch:
            return BatchQueueWriter(self._overlay, self._directory, size, end)
        return QueueWriter(self._overlay, self._directory, size, self.rules, end)

    def _drop(self, segment: Segment) -> None:
        self.loaded.segments.remove(segment)
        self._overlay.remove(segment.path)

    def _accepted_units(self, segment: Segment, log_end: int) -> int:
        """Number of units of a file that stay when it is read again; the first one is not tested."""
        import numpy as np

        size = self.loaded.kind.size
        known = self.loaded.known_units(segment)
        if size <= known.length and known.highest < log_end:
            return known.length // size
        valid_end = self.loaded.valid_length(segment, size)
        for position in range(size, valid_end, BLOCK_UNITS * size):
            block = self.loaded.read(segment, position, min(BLOCK_UNITS * size, valid_end - position))
            begins = np.frombuffer(block, np.uint8).reshape(-1, size)[:, :8].copy().view(">i8").ravel()
            after = np.flatnonzero(begins >= log_end)
            if after.size:
                return position // size + int(after[0])
        return max(1, valid_end // size)
