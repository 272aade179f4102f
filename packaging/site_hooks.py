"""Steps of mkdocs for the documentation site: pages at the root of the checkout, and two languages in one site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "LICENSE": "license.txt",
}
"""Files at the root of the checkout, and what they are in the site."""
LINK: Final = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what is not in `docs/`."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links between files of the checkout into links between pages of the site."""
    name = page.file.src_uri
    source = next((path for path, site in OUTSIDE.items() if site == name), f"docs/{name}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match.group(2)))
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return match.group(1) + posixpath.relpath(target, posixpath.dirname(name) or ".")

    return LINK.sub(link, markdown)


def on_page_context(context: dict[str, Any], *, page: Page, config: MkDocsConfig, **_: object) -> dict[str, Any]:
    """Words of the theme, and the link to the other language, by the page's own."""
    name = page.file.src_uri
    chinese = name.startswith("zh/")
    config.theme["language"] = "zh" if chinese else "en"
    plain = name.removeprefix("zh/").replace("README.md", "index.md")
    pages = {"en": plain, "zh": "zh/README.md" if plain == "index.md" else f"zh/{plain}"}
    for language, start in (("en", "index.md"), ("zh", "zh/README.md")):
        there = (ROOT / "docs" / pages[language]).exists() or pages[language] in OUTSIDE.values()
        (choice,) = [choice for choice in config.extra["alternate"] if choice["lang"] == language]
        html = (pages[language] if there else start).replace("README.md", "index.md")
        choice["link"] = html.removesuffix(".md") + ".html"
    return context
