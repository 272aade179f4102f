"""A queue while a broker loads and starts: which files it has, where it ends, what it counts as entered.

Broker: `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`, `#correctMinOffset`, and the same of `BatchConsumeQueue`.
"""

from __future__ import annotations

from typing import Final

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd, QueueWriter, physical_end
from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.loaded_files import BLOCK_UNITS, LoadedFiles, minimum_position, recovered_end, valid_length
from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN, PLAIN_UNITS, Queue, whole_units
from rmqtool.engine.rules.algorithms import MinOffsetSearch
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.forecast.load import LoadedQueue, LoadFailure
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT_SIZE
from rmqtool.store.directory import Segment
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.overlay import Overlay
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
        self.units = BATCH_UNITS if loaded.is_batch else PLAIN_UNITS
        self.file_size = file_size
        self.segments: list[Segment] = list(loaded.segments)
        self.end = self.segments[-1].start + file_size if self.segments else 0
        self.physical_end = NOTHING_ENTERED
        self.minimum = 0
        self.known_maximum = 0
        self._directory = loaded.directory
        self._overlay = overlay
        self.rules = rules
        self._writer: QueueWriter | BatchQueueWriter | None = None
        self._odd_lengths: dict[str, int] = {}

    def recover(self, files: OpenFiles) -> None:
        """Find the end from the third-last file on; files behind an invalid unit are unlinked.

        Raises:
            UnreadableError: a file cannot be read.
        """
        if not self.segments:
            return

        def length_of(segment: Segment) -> int:
            return self._valid_units(segment, files)[0]

        recovered = recovered_end(self.segments, self.file_size, length_of)
        self.end = recovered.end
        if recovered.last is not None:
            position = recovered.last_length - self.units.size
            self.physical_end = physical_end(self.loaded(files), recovered.last, position, self.rules)
        for segment in [segment for segment in self.segments if segment.start > self.end]:
            self._drop(segment)  # a file of a wrong name may stand behind them, and end the queue
        self._cut_files()
        self._note_maximum(files)

    def _cut_files(self) -> None:
        """Read each file up to the place that the end has in a file, whatever its own name says."""
        size = self.file_size
        lengths = [self.end % size if self.end < segment.start + size else size for segment in self.segments]
        if lengths:
            self.end = self.segments[-1].start + lengths[-1]
        self._odd_lengths = {
            segment.path: length
            for segment, length in zip(self.segments, lengths, strict=True)
            if length != min(size, self.end - segment.start)
        }

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
            assert writer.begin is not None, "it created the first file"
            self.minimum = writer.begin
            start = self.minimum - self.minimum % self.file_size
        for first_byte in range(start, after.last_start + 1, self.file_size):
            path = f"{self._directory}/{segment_name(first_byte)}"
            self.segments.append(Segment(Entry(path, EntryKind.FILE, self.file_size), first_byte))

    def truncate(self, files: OpenFiles, log_end: int) -> None:
        """Cut the queue at the log's end: the last file is read again, so old units behind the end come back.

        Raises:
            UnreadableError: a file cannot be read.
        """
        self._note_maximum(files)
        self._writer = None
        self.physical_end = log_end
        while self.segments:
            last = self.segments[-1]
            self._odd_lengths.pop(last.path, None)
            loaded = LoadedFiles(self.segments, self.file_size, self.units, files, last.start + self.file_size)
            if loaded.physical_offset_at(last, 0) >= log_end:
                self._drop_last()
                self.end = self.segments[-1].start + self.file_size if self.segments else 0
                continue
            count = self._accepted_units(loaded, last, log_end, files)
            self.end = last.start + count * self.units.size
            self.physical_end = physical_end(loaded, last, (count - 1) * self.units.size, self.rules)
            return

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
        loaded, last = self.loaded(files), self.segments[-1]
        asks_last_unit = self.rules.min_offset_search is MinOffsetSearch.BINARY and self.minimum < self.end
        if asks_last_unit and not loaded.length(last) and not self.rules.min_offset_survives_short_last_file:
            raise LoadFailure(f"{last.path}: no unit in it, and the broker asks for its last one")
        self.minimum = minimum_position(loaded, self.rules, log_minimum, self.minimum)

    def maximum(self, files: OpenFiles) -> int:
        """Queue offset behind the last message.

        Raises:
            UnreadableError: a file cannot be read.
        """
        return self.queue(files, 0).max_queue_offset

    def loaded(self, files: OpenFiles) -> LoadedFiles:
        """Its files up to its end."""
        return LoadedFiles(self.segments, self.file_size, self.units, files, self.end, self._odd_lengths)

    def queue(self, files: OpenFiles, log_minimum: int, extension: QueueExtension | None = None) -> Queue:
        """The queue as it is now, for the engine's pulls."""
        loaded = self.loaded(files)
        if self.is_batch:
            return BatchQueue(self.topic, self.queue_id, loaded, self.rules, log_minimum)
        return FileQueue(self.topic, self.queue_id, loaded, self.rules, log_minimum, extension, self.minimum)

    def filler_units(self, files: OpenFiles) -> int:
        """Units without a message at the begin of the first file.

        Raises:
            UnreadableError: the file cannot be read.
        """
        if self.is_batch or not self.segments:
            return 0
        loaded, first = self.loaded(files), self.segments[0]
        count, filler = 0, PLAIN.pack(*FILLER_UNIT)
        while block := whole_units(loaded.read(first, count * UNIT_SIZE, BLOCK_UNITS * UNIT_SIZE), UNIT_SIZE):
            units = len(block) // UNIT_SIZE
            if block == filler * units:
                count += units
                continue
            return count + next(at for at in range(units) if block[at * UNIT_SIZE :][:UNIT_SIZE] != filler)
        return count

    def _open_writer(self) -> QueueWriter | BatchQueueWriter:
        if self._writer is None:
            last_start = self.segments[-1].start if self.segments else None
            last_path = self.segments[-1].path if self.segments else None
            end = QueueEnd(last_start, self.end, self.physical_end, last_path)
            if self.is_batch:
                self._writer = BatchQueueWriter(self._overlay, self._directory, self.file_size, end)
            else:
                self._writer = QueueWriter(self._overlay, self._directory, self.file_size, self.rules, end)
        return self._writer

    def _drop_last(self) -> None:
        self._drop(self.segments[-1])

    def _drop(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self._overlay.remove(segment.path)

    def _note_maximum(self, files: OpenFiles) -> None:
        self.known_maximum = max(self.known_maximum, self.maximum(files))

    def _valid_units(self, segment: Segment, files: OpenFiles) -> tuple[int, int]:
        """Bytes of the valid units that a file begins with, and the highest physical offset in them (-1 without)."""
        question = "valid units", self.file_size, self.units
        return files.known(segment.path, question, lambda: self._read_units(segment, files))

    def _read_units(self, segment: Segment, files: OpenFiles) -> tuple[int, int]:
        import numpy as np

        highest = [-1]

        def note(units: bytes) -> None:
            begins = np.frombuffer(units, np.uint8).reshape(-1, self.units.size)[:, :8].copy().view(">i8")
            highest[0] = max(highest[0], int(begins.max(initial=-1)))

        return valid_length(segment, self.file_size, self.units, files, on_units=note), highest[0]

    def _accepted_units(self, loaded: LoadedFiles, segment: Segment, log_end: int, files: OpenFiles) -> int:
        """How many units of a file stay when it is read again; the first one is not tested."""
        import numpy as np

        size = self.units.size
        valid_end, highest = self._valid_units(segment, files)
        if size <= valid_end and highest < log_end:
            return valid_end // size
        valid_end = valid_length(segment, self.file_size, self.units, files, size)
        for position in range(size, valid_end, BLOCK_UNITS * size):
            block = loaded.read(segment, position, min(BLOCK_UNITS * size, valid_end - position))
            begins = np.frombuffer(block, np.uint8).reshape(-1, size)[:, :8].copy().view(">i8").ravel()
            after = np.flatnonzero(begins >= log_end)
            if after.size:
                return position // size + int(after[0])
        return max(1, valid_end // size)
