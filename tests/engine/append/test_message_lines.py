"""What a row of `append --from` becomes."""

from __future__ import annotations

import pytest

from rmqtool.engine.append.message_lines import message_of_line


@pytest.mark.parametrize(
    ("fields", "properties"),
    [
        (b'"tags": "A", "keys": ["k1", "k2"]', {"TAGS": "A", "KEYS": "k1 k2"}),
        (b'"keys": "k1 k2"', {"KEYS": "k1 k2"}),
        (b'"tags": null, "keys": []', {}),
        (b'"tags": "A", "keys": ["k"], "properties": {"TAGS": "B", "x": "y"}', {"TAGS": "B", "x": "y", "KEYS": "k"}),
        (b'"tags": "A", "properties_raw": ""', {}),
    ],
)
def test_a_tag_and_keys_beside_the_properties_count_where_these_have_none(
    fields: bytes, properties: dict[str, str]
) -> None:
    message = message_of_line(b'{"topic": "T", %s}' % fields)
    assert message is not None
    assert message.properties == properties
