"""A sink whose files are bytes in memory."""

from __future__ import annotations

from rmqtool.errors import WriteError
from rmqtool.store.sink import check_path


class MemorySink:
    """Files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}

    def create(self, path: str, size: int) -> None:
        check_path(path)
        content = self.files.setdefault(path, bytearray())
        content.extend(bytes(max(0, size - len(content))))

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        content = self._content(path)
        part = memoryview(data).cast("B")
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(part)] = part

    def sync(self, path: str) -> None:
        self._content(path)

    def sync_directory(self, path: str) -> None:
        if path:
            check_path(path)

    def remove(self, path: str) -> None:
        self._content(path)
        del self.files[path]

    def close(self) -> None:
        """Nothing is held."""

    def _content(self, path: str) -> bytearray:
        check_path(path)
        try:
            return self.files[path]
        except KeyError:
            raise WriteError(f"{path}: no such file") from None
