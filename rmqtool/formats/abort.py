"""The abort file: it exists while a broker runs, so finding one means that the last stop was not clean.

Broker: `DefaultMessageStore#createTempFile`. Empty up to 4.9; from 5.0.0 on the broker's process id in decimal, without
a newline.
"""


def parse_abort(raw: bytes) -> int | None:
    """The process id in the file; None if it holds none."""
    text = raw.strip()
    return int(text) if text.isdigit() and len(text) <= 10 else None


def build_abort(process_id: int | None) -> bytes:
    """The file's content; None for a version that leaves it empty."""
    return b"" if process_id is None else str(process_id).encode("ascii")
