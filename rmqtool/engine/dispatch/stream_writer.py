"""Writes a stream that is cut into files of one size, as queues and their extensions are."""

from __future__ import annotations

from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import FileSink


class StreamWriter:
    """The files of one stream."""

    def __init__(
        self, sink: FileSink, directory: str, file_size: int, last_file: tuple[int | None, str | None], end: int
    ) -> None:
        """Continue at an end.

        Args:
            last_file: stream position at which the last file begins (None without files), and its path where the name
                is not the usual one.
            end: stream position after what is written.
        """
        self._sink = sink
        self._directory = directory
        self._file_size = file_size
        self._last_start = last_file[0]
        self._known_path = last_file
        self._end = end

    def _path(self, start: int) -> str:
        known_start, known_path = self._known_path
        return known_path if known_path and start == known_start else f"{self._directory}/{segment_name(start)}"
