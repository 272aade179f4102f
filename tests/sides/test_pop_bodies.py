"""Bodies of check points and acknowledgements of pop consumers, also such as no broker writes."""

import pytest

from rmqtool.sides.pop import PopKey, decode_pop_body

KEY = PopKey("orders", "shop", 3, 100, 1700000000000, "broker-a")
HEAD = b'{"t":"orders","c":"shop","q":3,"so":100,"pt":1700000000000,"bn":"broker-a",'
LONG = b'{"topic":"orders","consumerGroup":"shop","queueId":3,"startOffset":100,"popTime":1700000000000,'


def test_a_check_point_names_messages_by_differences_or_one_after_the_other() -> None:
    body = decode_pop_body("ck", HEAD + b'"it":60000,"n":3,"d":[0,2,5],"bm":2}')
    assert body == (KEY, (100, 102, 105), {102}, 1700000060000)
    assert decode_pop_body("ck", HEAD + b'"n":2,"bm":0}').offsets == (100, 101)
    assert decode_pop_body("ck", HEAD + b'"n":40,"bm":-1}').acknowledged == set(range(100, 132))


def test_sums_overflow_as_in_java() -> None:
    raw = b'{"t":"orders","c":"shop","so":9223372036854775807,"pt":9223372036854775807,"it":1,"n":2,"bm":0}'
    body = decode_pop_body("ck", raw)
    assert (body.offsets[1], body.revive_timestamp_ms) == (-(1 << 63), -(1 << 63))


def test_acknowledgements_name_one_message_or_several_also_with_long_names() -> None:
    assert decode_pop_body("ack", HEAD + b'"ao":102}') == (KEY, (102,), frozenset(), 0)
    assert decode_pop_body("bAck", HEAD + b'"ao":-1,"aol":[101,102]}').offsets == (101, 102)
    assert decode_pop_body("bAck", LONG + b'"brokerName":"broker-a","ackOffsetList":[7]}') == (
        KEY,
        (7,),
        frozenset(),
        0,
    )


@pytest.mark.parametrize("tag", ["ck", "ack", "bAck"])
@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"7", b"\xff", b"{}", b"[" * 100_000, HEAD + b'"q":"x"}', HEAD + b'"so":true}', HEAD + b'"c":null}'],
    ids=["empty", "list", "number", "bytes", "no-fields", "deep", "text", "boolean", "no-group"],
)
def test_other_bodies_are_refused(tag: str, raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_pop_body(tag, raw)


@pytest.mark.parametrize(
    "rest", [b'"n":3,"d":[0]}', b'"n":-1}', b'"n":99999999999}', b'"n":1,"d":["x"]}', b'"n":1,"d":7}']
)
def test_a_check_point_has_as_many_offsets_as_messages(rest: bytes) -> None:
    try:
        body = decode_pop_body("ck", HEAD + rest)
    except ValueError:
        return
    assert len(body.offsets) == 1
