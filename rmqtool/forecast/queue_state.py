"""A queue while a broker loads and starts: which files it has, where it ends, what it counts as entered.

Broker: `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`, `#correctMinOffset`, and the same of `BatchConsumeQueue`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqtool.engine.algorithms import MinOffsetSearch
from rmqtool.engine.batch_queue import BatchQueue
from rmqtool.engine.batch_queue_writer import BatchQueueWriter
from rmqtool.engine.dispatch import QueueEntries
from rmqtool.engine.extension import QueueExtension
from rmqtool.engine.open_files import OpenFiles
from rmqtool.engine.queue import FileQueue
from rmqtool.engine.queue_files import BLOCK_UNITS, FILES_EXAMINED, LoadedFiles
from rmqtool.engine.queue_unit import BATCH, PLAIN, valid_batch_unit_count, valid_unit_count
from rmqtool.engine.queue_writer import QueueEnd, QueueWriter
from rmqtool.engine.versions import BrokerRules
from rmqtool.forecast.load import LoadedQueue, LoadFailure
from rmqtool.forecast.overlay import Overlay
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, FILLER_UNIT, UNIT_SIZE
from rmqtool.store.directory import Segment
from rmqtool.store.kinds import segment_name
from rmqtool.store.view import Entry, EntryKind

NOTHING_ENTERED: Final = -1


class QueueState:
    """One queue of either kind; positions count bytes of its stream.

    Attributes:
        segments: its files, those made by the simulation too.
        end: behind the last unit.
        physical_end: broker's maxPhysicOffset, up to where records count as entered; -1 at first.
        minimum: the first unit that counts as readable (broker's minLogicOffset); of no meaning for a batch queue.
        known_maximum: the highest end in queue offsets that the queue had meanwhile.
    """

    def __init__(self, loaded: LoadedQueue, file_size: int, overlay: Overlay, rules: BrokerRules) -> None:
        self.topic = loaded.topic
        self.queue_id = loaded.queue_id
        self.is_batch = loaded.is_batch
        self.unit_size: int = BATCH_UNIT_SIZE if loaded.is_batch else UNIT_SIZE
        self.file_size = file_size
        self.segments: list[Segment] = list(loaded.segments)
        self.end = self.segments[-1].start + file_size if self.segments else 0
        self.physical_end = NOTHING_ENTERED
        self.minimum = 0
        self.known_maximum = 0
        self._directory = loaded.directory
        self._overlay = overlay
        self._rules = rules
        self._writer: QueueWriter | BatchQueueWriter | None = None
        self._valid_count = valid_batch_unit_count if loaded.is_batch else valid_unit_count

    def recover(self, files: OpenFiles) -> None:
        """Find the end from the third-last file on; files behind an invalid unit are unlinked.

        Raises:
            UnreadableError: a file cannot be read.
        """
        if not self.segments:
            return
        self.end = 0
        for segment in self.segments[-FILES_EXAMINED:]:
            length = self._valid_length(files, segment)
            self.end = segment.start + length
            if length:
                self.physical_end = self._physical_end_at(files, segment, length - self.unit_size)
            if length != self.file_size:
                break
        while self.segments and self.segments[-1].start > self.end:
            self._drop_last()
        self._note_maximum(files)

    def put(self, entries: QueueEntries) -> None:
        """Enter records of the log, by the rules of the broker's put.

        Raises:
            WriteError: the room for changes is used up.
        """
        writer = self._open_writer()
        before = writer.end
        if isinstance(writer, BatchQueueWriter):
            writer.put(entries)
        else:
            writer.put(entries)
        after = writer.end
        self.end, self.physical_end = after.end, after.physical_offset
        if after.last_start is None or after.last_start == before.last_start:
            return
        if before.last_start is not None:
            start = before.last_start + self.file_size
        elif self.is_batch:
            start = 0
        else:
            assert writer.begin is not None, "it made the first file"
            self.minimum = writer.begin
            start = self.minimum - self.minimum % self.file_size
        for first_byte in range(start, after.last_start + 1, self.file_size):
            path = f"{self._directory}/{segment_name(first_byte)}"
            self.segments.append(Segment(Entry(path, EntryKind.FILE, self.file_size), first_byte))

    def truncate(self, files: OpenFiles, log_end: int) -> None:
        """Cut the queue at the log's end: the last file is read anew, so old units behind the end come back.

        Raises:
            UnreadableError: a file cannot be read.
        """
        self._note_maximum(files)
        self._writer = None
        self.physical_end = log_end
        while self.segments:
            last = self.segments[-1]
            if self._physical_offset_at(files, last, 0) >= log_end:
                self._drop_last()
                self.end = self.segments[-1].start + self.file_size if self.segments else 0
                continue
            count = self._accepted_units(files, last, log_end)
            self.end = last.start + count * self.unit_size
            self.physical_end = self._physical_end_at(files, last, (count - 1) * self.unit_size)
            return

    def refresh(self) -> None:
        """See the files as they are now: those that were written to have another modification time."""
        self.segments = [replace(found, entry=self._overlay.stat(found.path) or found.entry) for found in self.segments]

    def destroy(self) -> None:
        """Unlink all files, as a broker does that finds no log."""
        self._writer = None
        while self.segments:
            self._drop_last()
        self.end, self.physical_end, self.minimum = 0, NOTHING_ENTERED, 0

    def correct_minimum(self, files: OpenFiles, log_minimum: int) -> None:
        """Look for the first unit that does not lie below the log, in the first file only.

        Raises:
            LoadFailure: the broker asks for a unit in front of a file's begin, and gives up.
            UnreadableError: a file cannot be read.
        """
        if self.is_batch or not self.segments:
            return
        if self._rules.min_offset_search is MinOffsetSearch.LINEAR:
            found = self._first_at_or_above(files, 0, log_minimum)
            self.minimum = self.segments[0].start + found if found is not None else self.minimum
        else:
            self._search_minimum(files, log_minimum)

    def maximum(self, files: OpenFiles) -> int:
        """Queue offset behind the last message.

        Raises:
            UnreadableError: a file cannot be read.
        """
        return KnownBatchQueue(self, files, 0).max_queue_offset if self.is_batch else self.end // UNIT_SIZE

    def filler_units(self, files: OpenFiles) -> int:
        """Units without a message at the begin of the first file.

        Raises:
            UnreadableError: the file cannot be read.
        """
        if self.is_batch or not self.segments:
            return 0
        loaded, first = KnownFiles(self, files), self.segments[0]
        count, filler = 0, PLAIN.pack(*FILLER_UNIT)
        while block := loaded.read(first, count * UNIT_SIZE, BLOCK_UNITS * UNIT_SIZE):
            units = len(block) // UNIT_SIZE
            if block == filler * units:
                count += units
                continue
            return count + next(at for at in range(units) if block[at * UNIT_SIZE :][:UNIT_SIZE] != filler)
        return count

    def _open_writer(self) -> QueueWriter | BatchQueueWriter:
        if self._writer is None:
            last_start = self.segments[-1].start if self.segments else None
            end = QueueEnd(last_start, self.end, self.physical_end)
            if self.is_batch:
                self._writer = BatchQueueWriter(self._overlay, self._directory, self.file_size, end)
            else:
                self._writer = QueueWriter(self._overlay, self._directory, self.file_size, self._rules, end)
        return self._writer

    def _drop_last(self) -> None:
        self._overlay.remove(self.segments.pop().path)

    def _note_maximum(self, files: OpenFiles) -> None:
        self.known_maximum = max(self.known_maximum, self.maximum(files))

    def _block(self, files: OpenFiles, segment: Segment, position: int, units: int) -> bytes:
        wanted = max(0, min(units * self.unit_size, self.file_size - position))
        return files.read(segment.path, position, wanted).ljust(wanted, b"\0")

    def _valid_length(self, files: OpenFiles, segment: Segment, first: int = 0) -> int:
        """Bytes up to the first invalid unit from a position on."""
        length = first
        while block := self._block(files, segment, length, BLOCK_UNITS):
            valid = self._valid_count(block) * self.unit_size
            length += valid
            if valid < len(block):
                break
        return length

    def _physical_offset_at(self, files: OpenFiles, segment: Segment, position: int) -> int:
        return int.from_bytes(self._block(files, segment, position, 1)[:8], "big", signed=True)

    def _physical_end_at(self, files: OpenFiles, segment: Segment, position: int) -> int:
        unit = self._block(files, segment, position, 1)
        begin, size = (BATCH if self.is_batch else PLAIN).unpack(unit)[:2]
        return int(begin) if self.is_batch or self._rules.queue_end_is_record_start else int(begin) + int(size)

    def _accepted_units(self, files: OpenFiles, segment: Segment, log_end: int) -> int:
        """How many units of a file stay when it is read anew; the first one is not tested."""
        import numpy as np

        valid_end = self._valid_length(files, segment, self.unit_size)
        position, step = self.unit_size, BLOCK_UNITS * self.unit_size
        while position < valid_end:
            block = self._block(files, segment, position, BLOCK_UNITS)[: valid_end - position]
            begins = np.frombuffer(block, np.uint8).reshape(-1, self.unit_size)[:, :8].copy().view(">i8").ravel()
            behind = np.flatnonzero(begins >= log_end)
            if behind.size:
                return position // self.unit_size + int(behind[0])
            position += step
        return max(1, valid_end // self.unit_size)

    def _first_at_or_above(self, files: OpenFiles, start: int, log_minimum: int) -> int | None:
        first = self.segments[0]
        loaded = KnownFiles(self, files)
        while block := loaded.read(first, start, BLOCK_UNITS * UNIT_SIZE):
            for number, (physical_offset, _, _) in enumerate(PLAIN.iter_unpack(block)):
                if physical_offset >= log_minimum:
                    return start + number * UNIT_SIZE
            start += len(block)
        return None

    def _search_minimum(self, files: OpenFiles, log_minimum: int) -> None:
        if self.minimum >= self.end and not (self._rules.empty_queue_examined_again and self.minimum == self.end):
            return
        first, last = self.segments[0], self.segments[-1]
        loaded = KnownFiles(self, files)
        last_length, length = loaded.length(last), loaded.length(first)
        if last_length >= UNIT_SIZE:
            if self._physical_offset_at(files, last, last_length - UNIT_SIZE) < log_minimum:
                self.minimum = last.start + last_length
                return
        elif not self._rules.min_offset_survives_short_last_file:
            raise LoadFailure(f"{last.path}: without a unit, while the broker asks for its last one")
        start = max(0, self.minimum - first.start)
        if start >= length:
            return
        if self.minimum >= first.start and self._physical_offset_at(files, first, start) >= log_minimum:
            return
        low, high = 0, length - start - UNIT_SIZE
        while high - low > UNIT_SIZE:
            middle = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
            found = self._physical_offset_at(files, first, start + middle)
            if found == log_minimum:
                low = high = middle
            elif found > log_minimum:
                high = middle
            else:
                low = middle
        for position in range(low, high + 1, UNIT_SIZE):
            if self._physical_offset_at(files, first, start + position) >= log_minimum:
                self.minimum = first.start + start + position
                return


class KnownFiles(LoadedFiles):
    """A queue's files with a known end, for the engine's readers."""

    def __init__(self, state: QueueState, files: OpenFiles) -> None:
        self.unit_size = state.unit_size
        self.file_size = state.file_size
        self.end = state.end
        self.segments = tuple(state.segments)
        self._starts = [segment.start for segment in self.segments]
        self._files = files


class KnownQueue(FileQueue):
    """A plain queue with known end and minimum, for the engine's pulls."""

    def __init__(
        self,
        state: QueueState,
        files: OpenFiles,
        rules: BrokerRules,
        log_minimum: int,
        extension: QueueExtension | None = None,
    ) -> None:
        self.topic = state.topic
        self.queue_id = state.queue_id
        self.unit_size = UNIT_SIZE
        self.loaded = KnownFiles(state, files)
        self.min_stream_position = state.minimum
        self._extension = extension
        self._rules = rules
        self._log_minimum = log_minimum


class KnownBatchQueue(BatchQueue):
    """A batch queue with a known end, for the engine's pulls."""

    def __init__(self, state: QueueState, files: OpenFiles, log_minimum: int) -> None:
        self.topic = state.topic
        self.queue_id = state.queue_id
        self.unit_size = BATCH_UNIT_SIZE
        self.loaded = KnownFiles(state, files)
        self._log_minimum = log_minimum
