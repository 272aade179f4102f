"""Random messages of every variant, and random damage, for Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from rmqtool.formats.commitlog import MAGIC_V1, MAGIC_V2
from rmqtool.scan.walk import STALE_MARGIN_MS
from tests.scan.logs import FIRST_STORE_TIMESTAMP_MS, LogBytes, Message, log_bytes

SEGMENTS = (
    b"TAGS\x01TagA",
    "TAGS\x01标签 é 🚀".encode(),
    b"TAGS\x01",
    b"TAGS",
    b"TAGS\x01a\x01b",
    b"TAGS\x01\xff\xed\xa0\x80",
    b"TAGSX\x01no",
    b"KEYS\x01key1 key2",
    b"KEYS\x01",
    b"UNIQ_KEY\x017F0000010000",
    b"UNIQ_KEYS\x01no",
    b"DELAY\x013",
    b"DELAY\x01-1",
    b"DELAY\x01x",
    b"DELAY\x0199999999999",
    b"INNER_NUM\x013",
    b"INNER_BASE\x010",
    b"INNER_MULTI_DISPATCH\x01a,b",
    b"INNER_MULTI_QUEUE_OFFSET\x011,2",
    b"__CRC32#\x010123456789",
    b"\x01value",
    b"name",
    b"",
    b"\x00\x01\x00",
)
SHORT_TOPICS = (b"TopicTest", b"T", "主题".encode(), b"SCHEDULE_TOPIC_XXXX", b"%RETRY%group", b"\xff\x01", b"x" * 127)

properties = st.one_of(
    st.builds(
        lambda parts, end: b"\x02".join(parts) + end,
        st.lists(st.sampled_from(SEGMENTS), max_size=6),
        st.sampled_from((b"", b"\x02")),
    ),
    st.binary(max_size=60),
)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
sys_flags = st.builds(
    lambda hosts, others: hosts | others,
    st.sampled_from((0, 0x10, 0x20, 0x30)),
    st.sampled_from((0, 1, 4, 8, 12, 0x81, 0x40)),
)
bodies = st.one_of(st.binary(max_size=40), st.integers(100, 1500).map(lambda size: bytes(range(256)) * 6 + b"x" * size))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any variant, with odd bytes wherever the format allows them."""
    magic = draw(st.sampled_from((MAGIC_V1, MAGIC_V2)))
    return Message(
        body=draw(bodies),
        topic=draw(st.sampled_from(SHORT_TOPICS if magic == MAGIC_V1 else (*SHORT_TOPICS, b"L" * 200))),
        properties=draw(properties),
        sys_flag=draw(sys_flags),
        magic=magic,
        queue_id=draw(ints),
        queue_offset=draw(longs),
        flag=draw(ints),
        born_timestamp_ms=draw(longs),
        # Further apart, one behind a bad record may be taken for a record of an older log.
        store_timestamp_ms=draw(st.integers(0, STALE_MARGIN_MS)) + FIRST_STORE_TIMESTAMP_MS,
        reconsume_times=draw(ints),
        prepared_transaction_offset=draw(longs),
    )


physical_offsets = st.sampled_from((0, 65536, 1 << 30, 5 << 40))
block_sizes = st.sampled_from((128, 500, 4096, 1 << 19))


@st.composite
def logs(draw: st.DrawFn) -> LogBytes:
    """A file of random records, whose last bytes are a blank of any size, zeros, or too few for either."""
    blank = draw(st.booleans())
    return log_bytes(
        draw(st.lists(messages(), max_size=8)),
        physical_offset=draw(physical_offsets),
        tail=draw(st.sampled_from((8, 9, 64, 5000) if blank else (0, 1, 7, 8, 300))),
        blank=blank,
        with_record_crc=draw(st.booleans()),
    )


@dataclass(frozen=True)
class Damaged:
    """A log after its damage; `touched` are the ranges whose bytes changed, `shifted_from` where places changed too."""

    log: LogBytes
    touched: tuple[tuple[int, int], ...]
    shifted_from: int

    def intact(self) -> list[tuple[int, int]]:
        """Spans of the records that the damage did not touch."""
        return [
            (start, end)
            for start, end in self.log.spans
            if end <= self.shifted_from and not any(first < end and last > start for first, last in self.touched)
        ]


@st.composite
def damaged_logs(draw: st.DrawFn) -> Damaged:
    """A log of plain messages and up to three edits."""
    count = draw(st.integers(1, 8))
    log = log_bytes(
        [
            Message(
                body=draw(bodies),
                topic=draw(st.sampled_from((b"TopicTest", b"Other"))),
                store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + number,
                magic=draw(st.sampled_from((MAGIC_V1, MAGIC_V2))),
            )
            for number in range(count)
        ],
        physical_offset=draw(physical_offsets),
        blank=draw(st.booleans()),
        tail=draw(st.sampled_from((8, 500))),
    )
    content, touched, shifted_from = log.content, [], len(log.content)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("flip", "zero", "cut", "insert", "foreign", "wrap")))
        at = draw(st.integers(0, max(0, len(content) - 1)))
        length = draw(st.integers(1, 300))
        new = bytes(length)
        if kind == "flip":
            length = 1
            new = bytes([content[at] ^ draw(st.integers(1, 255))]) if content else b""
        elif kind == "foreign":
            new = Message(body=b"foreign").record(draw(st.sampled_from((0, 1 << 33))))
        elif kind == "wrap":
            # Inside another record, yet right in all that it says of itself, its own offset included.
            new = Message(body=b"inner").record(log.physical_offset + at)
        elif kind == "insert":
            content = content[:at] + draw(st.binary(min_size=1, max_size=20)) + content[at:]
            shifted_from = min(shifted_from, at)
            continue
        elif kind == "cut":
            content = content[:at] + content[at + length :]
            shifted_from = min(shifted_from, at)
            continue
        content = content[:at] + new + content[at + len(new) :]
        touched.append((at, at + len(new)))
    return Damaged(log.with_content(content), tuple(touched), shifted_from)
