"""The pages of docs/ that follow from declarations are as those say today."""

from __future__ import annotations

import pytest

from tests.pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_fresh(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), "run `python -m tests.pages`"
