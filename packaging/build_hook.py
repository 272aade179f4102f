"""A step of hatchling's build: man pages and completion scripts are generated, and installed below `share`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Documents(BuildHookInterface):  # type: ignore[type-arg]
    """Adds to a wheel what an installed program has beside its code; an editable one has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate them from the sources that the wheel is built from."""
        if version == "editable":
            return
        sys.path[:0] = [self.root, str(Path(self.root) / "packaging")]
        from man_pages import write

        self._folder = tempfile.TemporaryDirectory(prefix="rmqtool-share-")
        build_data["shared_data"].update(write(Path(self._folder.name)))
