"""The one definition of an intact record, in words in docs/development/judge.md; rmqtool takes no part in it."""

from pathlib import Path

from tests.judge.bases import Base, Truth


def log_content(path: Path, directories: tuple[str, ...], length: int) -> dict[int, list[bytes]]:
    """The log's files by the physical offset that their names say, each up to `length` bytes.

    Names that Java reads as one number (with more leading zeros) are files of one offset.
    """
    files: dict[int, list[bytes]] = {}
    for directory in directories:
        for file in sorted((path / directory).glob("[0-9]*")):
            if file.is_file() and file.name.isdigit() and len(file.name) >= 20:
                with file.open("rb") as source:
                    files.setdefault(int(file.name), []).append(source.read(length))
    return files


def intact_records(base: Base, truth: Truth, path: Path) -> set[int]:
    """Physical offsets of the records that the base's broker wrote and that lie where they lay, byte for byte."""
    plan = base.plan
    size = plan.log_file_size
    length = min(size, 1 + max((at % size + length for at, length in truth.sizes.items()), default=0))
    before = log_content(base.path, plan.log_directories, length)
    after = log_content(path, plan.log_directories, length)
    intact = set()
    for at, record_size in truth.sizes.items():
        start, position = at - at % size, at % size
        raw = before[start][0][position : position + record_size]
        if any(file[position : position + record_size] == raw for file in after.get(start, ())):
            intact.add(at)
    return intact
