"""The pictures of the README are what the commands print today."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.pictures import FOLDER, PICTURES, picture

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_command_prints_today(name: str) -> None:
    kept = (FOLDER / name).read_text("utf-8")
    assert kept == picture(PICTURES[name]), "python -m tests.pictures writes it again"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_needs_nothing_from_elsewhere(name: str) -> None:
    kept = (FOLDER / name).read_text("utf-8")
    addresses = re.findall(r"https?://[^\"']+|url\(|@import|<script|href", kept)
    assert addresses == ["http://www.w3.org/2000/svg"]
    texts = [element.text for element in ET.fromstring(kept).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == f"$ {PICTURES[name]}"
    assert any(text and text.startswith("WOULD LOSE") for text in texts)


@pytest.mark.parametrize("page", ["README.md", "docs/zh/README.md"])
def test_the_readme_shows_each_picture_below_its_command(page: str) -> None:
    path = ROOT / page
    text = path.read_text("utf-8")
    for command in PICTURES.values():
        match = re.search(r"```sh\n" + re.escape(command) + r"\n```\n\n!\[[^\]]+\]\(([^)]+)\)", text)
        assert match is not None, shlex.split(command)[1]
        assert (path.parent / match[1]).is_file()


def test_each_picture_is_declared() -> None:
    assert {path.name for path in FOLDER.iterdir()} == PICTURES.keys()
