"""The account of a run: of every file that was looked at each byte is checked, untouched, reported or left out.

`Account.settle` is asserted at the end of every run, so a check that forgets a part of a file is an error of the
program and is seen at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FileAccount:
    """Bytes of one file: `left_out` are those that the options or a live broker keep from being judged."""

    size: int
    checked: int = 0
    zero_tail: int = 0
    reported: int = 0
    left_out: int = 0

    @property
    def open_bytes(self) -> int:
        """Bytes that nothing has accounted for; 0 when the account is settled."""
        return self.size - self.checked - self.zero_tail - self.reported - self.left_out


@dataclass
class Account:
    """Accounts by path."""

    files: dict[str, FileAccount] = field(default_factory=dict)

    def file(self, path: str, size: int) -> FileAccount:
        """The account of a file, opened with its size when it is first asked for."""
        return self.files.setdefault(path, FileAccount(size))

    def settle(self) -> None:
        """Assert that no bytes of a file were counted twice or not at all."""
        unsettled = [f"{path}: {file_account}" for path, file_account in self.files.items() if file_account.open_bytes]
        if unsettled:
            raise AssertionError("bytes not accounted for: " + "; ".join(unsettled[:5]))

    @property
    def checked_bytes(self) -> int:
        return sum(
            file_account.checked + file_account.reported + file_account.zero_tail
            for file_account in self.files.values()
        )
