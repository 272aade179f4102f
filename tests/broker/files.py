"""What a store directory holds, told by content: which files a broker removed, added or changed."""

import hashlib
import os
import subprocess
from pathlib import Path

BLOCK = 1 << 16

Snapshot = dict[str, tuple[int | None, str]]


def copy_store(source: Path, target: Path) -> Path:
    """A copy that keeps holes and modification times; a broker may then have it."""
    command = ["cp", "-a", "--sparse=always", str(source), str(target)]
    subprocess.run(command, check=True, timeout=600)
    return target


def swap_names(file: Path, other: Path) -> None:
    """Each gets the name of the other."""
    spare = file.with_name("spare")
    file.rename(spare)
    other.rename(file)
    spare.rename(other)


def snapshot(directory: Path) -> Snapshot:
    """Length and content digest of every file, by its path relative to the directory.

    An empty directory counts as well, as a path with a slash at its end and without a length.
    """
    found: Snapshot = {}
    for folder, folders, names in os.walk(directory):
        if not folders and not names and Path(folder) != directory:
            found[f"{Path(folder).relative_to(directory)}/"] = (None, "")
        for name in names:
            path = Path(folder, name)
            try:
                found[str(path.relative_to(directory))] = (path.stat().st_size, digest(path))
            except FileNotFoundError:
                continue  # a running broker took it away between the listing and the look
    return found


def changes(before: Snapshot, after: Snapshot) -> dict[str, dict[str, int | None]]:
    """`{"removed", "added", "changed"}`, each a file's path and its length (of a changed one: the new length)."""
    return {
        "removed": {path: size for path, (size, _) in before.items() if path not in after},
        "added": {path: size for path, (size, _) in after.items() if path not in before},
        "changed": {path: entry[0] for path, entry in after.items() if path in before and before[path] != entry},
    }


def digest(path: Path) -> str:
    """Digest of the blocks that are not all zero: a hole and written zeros are the same content."""
    content = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        position = 0
        while position < end:
            try:
                data = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError:
                break  # only a hole is left
            position = data - data % BLOCK
            os.lseek(file.fileno(), position, os.SEEK_SET)
            block = file.read(BLOCK)
            if block.strip(b"\0"):
                content.update(position.to_bytes(8) + block)
            position += BLOCK
    return content.hexdigest()
