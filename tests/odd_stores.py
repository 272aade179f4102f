"""The odd stores: layouts that the tests of RocketMQ's own store make, each with what a real broker does with it.

The table is in tests/golden/life/README.md. Each archive holds one directory, whose name is not that of the archive;
that of `no-index-broker` holds the broker's properties file beside it, `b.conf`.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

from tests.golden_stores import LIFE_FOLDER, SUFFIX

ODD_FOLDER: Final = LIFE_FOLDER / "odd"
MIXED_CONF: Final = ODD_FOLDER / "mixed-plain-then-dledger.conf"


def odd_names() -> list[str]:
    """All of them."""
    return sorted(path.name.removesuffix(SUFFIX) for path in ODD_FOLDER.glob(f"*{SUFFIX}"))


def unpack_odd(name: str, folder: Path) -> Path:
    """Unpack one into `folder`; the store's path."""
    with tarfile.open(ODD_FOLDER / f"{name}{SUFFIX}") as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(folder / name)  # noqa: S202 - our own archives, and filtered
    (path,) = (path for path in (folder / name).iterdir() if path.is_dir())
    return path
