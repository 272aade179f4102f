"""A byte source that is open only while it is read: a log has more files than a process may hold open."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource


@dataclass
class LazySource:
    """See `ByteSource`; opened by the first read, and again by the first one after `close`.

    Name and size are those of the first look, so that a walk over a file that changes meanwhile still ends.
    """

    name: str
    size: int
    open: Callable[[], ByteSource]
    _opened: ByteSource | None = field(default=None, repr=False)

    @classmethod
    def look(cls, opener: Callable[[], ByteSource]) -> LazySource:
        """Open a file for the first time.

        Raises:
            UnreadableError: it may not be opened.
        """
        source = opener()
        return cls(source.name, source.size, opener, source)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._source().read_into(position, buffer)

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        try:
            source = self._source()
        except OSError:
            return iter([(start, end)] if start < end else [])
        return source.extents(start, end)

    @property
    def identity(self) -> Hashable | None:
        """See `ByteSource`."""
        try:
            return self._source().identity
        except OSError:
            return None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _source(self) -> ByteSource:
        if self._opened is None:
            try:
                self._opened = self.open()
            except UnreadableError as error:  # gone or forbidden since the first look: no bytes come from it any more
                raise OSError(str(error)) from error
        return self._opened
