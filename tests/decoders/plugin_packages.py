"""Packages with decoders, as they lie in a directory of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, code: str, decoders: Mapping[str, str]) -> None:
    """Lay a package down as an installer does: a module, and the metadata with its entry points."""
    (folder / f"{name}.py").write_text(code, "utf-8")
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", "utf-8")
    lines = [f"{decoder} = {name}:{attribute}\n" for decoder, attribute in decoders.items()]
    (metadata / "entry_points.txt").write_text("[rmqtool.decoders]\n" + "".join(lines), "utf-8")
