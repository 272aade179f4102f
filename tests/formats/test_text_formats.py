"""Structures of text have names of their own, and texts for all their fields."""

from __future__ import annotations

import pytest

from rmqtool.formats.catalog import FORMATS
from rmqtool.formats.pop import FIELD_DOCS, TAGS
from rmqtool.formats.text_formats import JSON, LINE, TEXT_FORMATS, TEXTS_BY_NAME, TextFormat


def test_no_two_structures_have_one_name() -> None:
    assert len(TEXTS_BY_NAME) == len(TEXT_FORMATS)
    assert not TEXTS_BY_NAME.keys() & {declared.name for declared in FORMATS}


@pytest.mark.parametrize("declared", TEXT_FORMATS, ids=lambda declared: declared.name)
def test_every_field_is_explained_once(declared: TextFormat) -> None:
    names = [name for name, _ in declared.fields]
    assert names
    assert len(set(names)) == len(names)
    assert all(text.strip() for _, text in declared.fields)
    assert declared.kind in (JSON, LINE)
    assert declared.about


def test_every_field_of_pop_is_shown_with_the_name_that_the_broker_has_for_it() -> None:
    shown = {tag: dict(TEXTS_BY_NAME[name].fields) for tag, name in zip(TAGS, POP, strict=True)}
    for short, long, tag, _ in FIELD_DOCS:
        for fields in shown.values() if tag == "all" else [shown[tag]]:
            assert short == long or f"({long})" in fields[short]


POP = ("pop-check-point", "pop-ack", "pop-batch-ack")
