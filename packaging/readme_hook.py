"""A step of hatchling's build: the README as a package index shows it, where links into the checkout lead nowhere.

They lead to the repository if `[project.urls]` names one as `Repository`; else the text names the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
COMMENT: Final = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)


class Readme(MetadataHookInterface):
    """Adds the README to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Its text as an index can show it."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        version = f"v{metadata['version']}" if "version" in metadata else "HEAD"
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository, version)}


def for_index(text: str, repository: str, version: str) -> str:
    """The text without links relative to the checkout, and without comments to its writers."""

    def link(match: re.Match[str]) -> str:
        picture, words, path, heading = match.groups(default="")
        if repository:
            kind = "raw" if picture else "blob"
            return f"{picture}[{words}]({repository}/{kind}/{version}/{path}{heading})"
        name = words.strip("`*")
        if picture:
            return f"({words})"
        return path if name == Path(path).name else f"{words} ({path})"

    parts = CODE.split(COMMENT.sub("", text))
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)
