"""Stores on fsspec's file system in memory, which stands for any file system elsewhere."""

from __future__ import annotations

from pathlib import Path

import fsspec


def put_store(path: Path, name: str) -> str:
    """Copy a store into memory; its URL."""
    memory = fsspec.filesystem("memory")
    if memory.exists(f"/{name}"):
        memory.rm(f"/{name}", recursive=True)
    memory.makedirs(f"/{name}", exist_ok=True)
    for found in sorted(path.rglob("*")):
        place = f"/{name}/{found.relative_to(path)}"
        if found.is_dir():
            memory.makedirs(place, exist_ok=True)
        else:
            memory.pipe_file(place, found.read_bytes())
    return f"memory://{name}"
