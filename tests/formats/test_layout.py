"""All that is derived from a declaration agrees with it: every view reads the same out of any bytes.

The views are construct, numpy and the struct module.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats import catalog
from rmqtool.formats.layout import Format
from tests.formats.examples import EXAMPLES
from tests.formats.test_catalog import flat, plain

FIXED = [declared for declared in catalog.FORMATS if declared.size is not None]
VARIABLE = [declared for declared in catalog.FORMATS if declared.size is None]


def by_name(declared: Format) -> str:
    return declared.name


def by_struct(declared: Format, raw: bytes) -> dict[str, Any]:
    values = struct.unpack_from(declared.struct_code, raw)
    return dict(zip((field.name for field in declared.fixed_fields), values, strict=True))


def by_numpy(declared: Format, raw: bytes) -> dict[str, Any]:
    row = np.frombuffer(raw, declared.dtype, count=1)[0]
    return {
        field.name: row[field.name].item() if field.is_integer else row[field.name].tobytes()
        for field in declared.fixed_fields
    }


def test_formats_of_both_kinds_are_declared() -> None:
    assert {declared.name for declared in VARIABLE} == {
        "message-v1",
        "message-v2",
        "batch-part",
        "consumequeue-ext-unit",
        "rocksdb-unit-key",
        "rocksdb-offset-key",
        "rocksdb-index-key",
        "rocksdb-timer-key",
        "rocksdb-transaction-key",
        "rocksdb-config-key",
        "rocksdb-config-offset-key",
        "rocksdb-pop-key",
    }
    assert len(FIXED) + len(VARIABLE) == len(catalog.FORMATS)


@pytest.mark.parametrize("declared", FIXED, ids=by_name)
class TestFixedFormat:
    def test_all_views_have_one_size(self, declared: Format) -> None:
        assert declared.size == declared.dtype.itemsize == struct.calcsize(declared.struct_code)
        assert declared.fields == declared.fixed_fields

    @settings(max_examples=40)
    @given(data=st.data())
    def test_all_views_read_the_same(self, declared: Format, data: st.DataObject) -> None:
        assert declared.size is not None
        raw = data.draw(st.binary(min_size=declared.size, max_size=declared.size))
        expected = flat(plain(declared.struct.parse(raw)))
        assert by_struct(declared, raw) == expected
        assert by_numpy(declared, raw) == expected
        assert declared.struct.build(declared.struct.parse(raw)) == raw


@pytest.mark.parametrize("declared", VARIABLE, ids=by_name)
def test_the_fixed_head_of_a_variable_format(declared: Format) -> None:
    head = struct.calcsize(declared.struct_code)
    assert head == declared.dtype.itemsize
    assert declared.fields[len(declared.fixed_fields)].size is None
    for example in (example for example in EXAMPLES if example.format_name == declared.name):
        expected = flat(example.fields)
        for found in (by_struct(declared, example.raw), by_numpy(declared, example.raw)):
            assert found == {name: expected[name] for name in found}


@pytest.mark.parametrize("declared", catalog.FORMATS, ids=by_name)
def test_every_field_is_documented(declared: Format) -> None:
    assert all(field.doc for field in declared.fields)
    assert declared.title
    assert declared.source


@pytest.mark.parametrize("declared", catalog.FORMATS, ids=by_name)
def test_positions_follow_from_sizes(declared: Format) -> None:
    position = 0
    for field in declared.fixed_fields:
        assert field.position == declared.position(field.name) == position
        assert field.size
        position += field.size
