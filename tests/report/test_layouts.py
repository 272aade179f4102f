"""`formats`: every declared field is on it and on the terminal."""

from __future__ import annotations

from rmqtool.formats.catalog import FORMATS
from rmqtool.formats.text_formats import TEXT_FORMATS
from rmqtool.report.layouts import AnyFormat, layout_lines, layout_object, list_lines
from tests.pages import formats_page


def test_every_field_is_shown_with_its_meaning_and_fits() -> None:
    for declared in FORMATS:
        for width in (60, 80, 200):
            lines = list(layout_lines(declared, width))
            assert all(len(line) <= width for line in lines)
            for field in declared.fields:
                assert any(field.name in line.split() for line in lines)
        assert [field["name"] for field in layout_object(declared)["fields"]] == [f.name for f in declared.fields]
        assert f"## {declared.name}\n" in formats_page()


def test_every_field_of_a_text_is_shown_with_its_meaning_and_fits() -> None:
    for declared in TEXT_FORMATS:
        for width in (60, 80, 200):
            lines = list(layout_lines(declared, width))
            assert all(len(line) <= width for line in lines)
            text = " ".join(" ".join(lines).split())
            for name, doc in declared.fields:
                assert f"{name} {doc}" in text
        assert [field["name"] for field in layout_object(declared)["fields"]] == [name for name, _ in declared.fields]
        assert f"### {declared.name}\n" in formats_page()


def test_the_list_names_every_format() -> None:
    all_formats: list[AnyFormat] = [*FORMATS, *TEXT_FORMATS]
    for width in (60, 80, 200):
        lines = list(list_lines(width))
        assert [line.split()[0] for line in lines if line[0] != " "] == [declared.name for declared in all_formats]
        assert all(len(line) <= width for line in lines)
        assert not any("…" in line for line in lines)
    in_a_pipe = list(list_lines(None))
    assert len(in_a_pipe) == len(all_formats)
    assert all(declared.source in line for declared, line in zip(all_formats, in_a_pipe, strict=True))
