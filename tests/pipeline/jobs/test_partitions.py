"""Each topic has a folder name that file systems take, and that leads back to the topic unless it had to be cut."""

from __future__ import annotations

import random
import re

import pytest

from pyspark_rocketmq import text_of_folder
from rmqtool.errors import UsageError
from rmqtool.pipeline.jobs.partitions import FOLDER_MAX, folder_of

CASES = {
    "Orders": "Orders",
    "%RETRY%group-1": ".25RETRY.25group-1",
    "a.b*c+d e~f/g": "a.2Eb.2Ac.2Bd.20e.7Ef.2Fg",
    "订单": ".E8.AE.A2.E5.8D.95",
    "": "..empty",
    "..": ".2E.2E",
    "..empty": ".2E.2Eempty",
    "__HIVE_DEFAULT_PARTITION__": ".5F_HIVE_DEFAULT_PARTITION__",
}


@pytest.mark.parametrize(("text", "folder"), CASES.items())
def test_a_folder_leads_back_to_its_text(text: str, folder: str) -> None:
    assert folder_of(text) == folder
    assert text_of_folder(folder) == text


def some_texts() -> list[str]:
    """Texts of all planes of Unicode, many of which differ in one character."""
    chance, characters = random.Random(7), "aB0-_.*+ ~%/\\:\0\n=é订\u202e😀"
    return list(CASES) + ["".join(chance.choices(characters, k=chance.randrange(90))) for _ in range(4000)]


def test_folders_are_short_and_differ() -> None:
    texts = {*some_texts(), *("t" * length for length in range(1, 300)), "订" * 85, "订" * 84 + "单"}
    folders = {folder_of(text) for text in texts}
    assert len(folders) == len(texts)
    assert all(len(folder) <= FOLDER_MAX and re.fullmatch(r"[A-Za-z0-9_.-]+", folder) for folder in folders)
    for text in texts:
        folder = folder_of(text)
        assert text_of_folder(folder) == (None if re.search(r"\.\.[0-9a-f]{32}$", folder) else text)


@pytest.mark.parametrize("folder", ["a/b", "a b", "a.", ".ZZ", ".e8", ".FF", "..", "..other", "", "x" * 201])
def test_what_is_no_folder_is_refused(folder: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a folder"):
        text_of_folder(folder)
