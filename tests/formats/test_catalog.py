"""Every declared format reads and writes the bytes of its examples, field by field."""

from __future__ import annotations

import struct
from typing import Any

import construct
import pytest

from rmqtool.formats import catalog
from tests.formats.examples import EXAMPLES, Example


def plain(found: Any) -> Any:
    """A container as a dict, without construct's own entries."""
    if isinstance(found, construct.Container):
        return {name: plain(value) for name, value in found.items() if not name.startswith("_")}
    return found


WITHOUT_LENGTH = ("rocksdb-index-key", "rocksdb-timer-key", "rocksdb-transaction-key", "rocksdb-pop-key")


def flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names, as a layout names them."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found.update(flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return found


def test_every_format_has_an_example() -> None:
    assert {example.format_name for example in EXAMPLES} == {declared.name for declared in catalog.FORMATS}


def test_every_format_is_found_by_its_name() -> None:
    assert [catalog.BY_NAME[declared.name] for declared in catalog.FORMATS] == list(catalog.FORMATS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.format_name)
class TestExample:
    def test_parse(self, example: Example) -> None:
        assert plain(catalog.BY_NAME[example.format_name].struct.parse(example.raw)) == example.fields

    def test_build(self, example: Example) -> None:
        assert catalog.BY_NAME[example.format_name].struct.build(example.fields) == example.raw

    def test_size(self, example: Example) -> None:
        assert catalog.BY_NAME[example.format_name].size in {None, len(example.raw)}

    def test_fixed_fields_by_position(self, example: Example) -> None:
        declared = catalog.BY_NAME[example.format_name]
        expected = flat(example.fields)
        found = dict(
            zip(
                (field.name for field in declared.fixed_fields),
                struct.unpack_from(declared.struct_code, example.raw),
                strict=True,
            )
        )
        assert found
        assert found == {name: expected[name] for name in found}

    def test_every_field_is_in_the_layout(self, example: Example) -> None:
        assert [field.name for field in catalog.BY_NAME[example.format_name].fields] == list(flat(example.fields))

    def test_nothing_is_read_out_of_fewer_bytes(self, example: Example) -> None:
        declared = catalog.BY_NAME[example.format_name]
        # A key in RocksDB whose text has no length before it ends where the key ends.
        end = len(example.raw) if declared.name not in WITHOUT_LENGTH else struct.calcsize(declared.struct_code)
        for length in range(end):
            with pytest.raises(construct.ConstructError):
                declared.struct.parse(example.raw[:length])
