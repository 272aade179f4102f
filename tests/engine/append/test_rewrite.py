"""Properties are stored as a client and then a broker encode them, whichever way they are made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.engine.append.rewrite import CLIENT_MAP_CAPACITY, encode_map, hash_map_order, sent_text
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.properties import decode_properties, encode_properties

TEXTS = st.text(st.sampled_from("ab \x01\x02é世\ud800"), max_size=4)
NAMES = st.one_of(TEXTS, st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT"]), st.text("abcdef", max_size=9))


def by_both(properties: dict[str, str], version: str) -> bytes:
    """Encoded by the client, decoded and encoded again by the broker, step by step."""
    if not properties:
        return b""
    order = hash_map_order(properties, CLIENT_MAP_CAPACITY)
    sent = encode_properties({name: properties[name] for name in order}, trailing_separator=True)
    return encode_map(decode_properties(sent), rules_for(version))


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.1.4", "5.5.0"])
@given(properties=st.dictionaries(NAMES, TEXTS, max_size=20))
def test_the_short_way_stores_what_the_long_way_stores(version: str, properties: dict[str, str]) -> None:
    assert sent_text(properties, rules_for(version)) == by_both(properties, version)
