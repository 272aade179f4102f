"""Random messages of every kind that a version's store takes, in the words of the real store's `put`."""

import random
import zlib
from typing import Any

Message = dict[str, Any]
BORN = 1_700_000_000_000
BATCHED = "Packed"
LONG_TOPICS = tuple("%RETRY%" + "g" * length for length in (121, 180, 240))
LIGHT_QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%a,%LMQ%b")


class Sender:
    """Makes the messages of one base; `features` are those of `bases.Features`."""

    def __init__(self, draw: random.Random, features: frozenset[str], topics: tuple[str, ...], queues: int) -> None:
        self._draw = draw
        self._features = features
        self._topics = topics
        self._queues = queues
        self._number = 0

    def messages(self, count: int) -> list[Message]:
        return [self._next() for _ in range(count)]

    def plain(self, topic: str, queue_id: int) -> Message:
        """An ordinary message with a key of its own."""
        self._number += 1
        return {
            "topic": topic,
            "queueId": queue_id,
            "body": self._draw.randbytes(self._draw.randrange(1, 200)),
            "bornTimestamp": BORN + self._number,
            "properties": {"KEYS": f"new-{self._number}", "TAGS": "new", "UNIQ_KEY": self._unique()},
        }

    def _next(self) -> Message:
        kinds = ["single"] * 8 + [kind for kind in ("batch", "inner", "delay", "half", "flagged", "long", "light",
                                                    "packed", "retry", "v6") if kind in self._features]  # fmt: skip
        kind = self._draw.choice(kinds)
        message = self._single()
        if kind == "batch":
            del message["body"]
            message["batch"] = [self._part() for _ in range(self._draw.randrange(1, 6))]
        elif kind == "inner":
            del message["body"]
            message |= {"topic": BATCHED, "innerBatch": [self._part() for _ in range(self._draw.randrange(1, 6))]}
        elif kind == "delay":
            message["properties"]["DELAY"] = self._draw.choice(("16", "17", "18"))
        elif kind == "half":
            message["properties"] |= {"REAL_TOPIC": message["topic"], "REAL_QID": "0", "TRAN_MSG": "true"}
            message |= {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": 0}
        elif kind == "flagged":
            message["sysFlag"] = self._draw.choice((4, 8, 12))
        elif kind == "long":
            message["topic"] = self._draw.choice(LONG_TOPICS)
        elif kind == "light":
            message["properties"]["INNER_MULTI_DISPATCH"] = self._draw.choice(LIGHT_QUEUES)
        elif kind == "packed":
            message |= {"sysFlag": 1, "body": zlib.compress(message["body"] * 3)}
        elif kind == "retry":
            message |= {"topic": "%RETRY%group", "queueId": 0, "reconsumeTimes": self._draw.randrange(16)}
        elif kind == "v6":
            message |= {
                "bornHost": "[fe80::1]:77",
                "storeHost": self._draw.choice(("[fe80::2]:10911", "10.0.0.1:10911")),
            }
        return message

    def _single(self) -> Message:
        self._number += 1
        properties: dict[str, str] = {}
        if self._draw.random() < 0.9:
            properties["UNIQ_KEY"] = self._unique()
        if self._draw.random() < 0.7:
            properties["KEYS"] = " ".join(f"key-{self._number}-{n}" for n in range(self._draw.randrange(1, 3)))
        if self._draw.random() < 0.6:
            properties["TAGS"] = self._draw.choice(("TagA", "TagB", "a||b", "标签"))
        if self._draw.random() < 0.2:
            properties["name"] = "value " * self._draw.randrange(1, 20)
        return {
            "topic": self._draw.choice(self._topics),
            "queueId": self._draw.randrange(self._queues),
            "body": self._draw.randbytes(self._body_size()),
            "flag": self._draw.choice((0, 0, 7, -1)),
            "bornTimestamp": BORN + self._number,
            "properties": properties,
        }

    def _part(self) -> Message:
        part = self._single()
        return {"body": part["body"], "flag": part["flag"], "properties": part["properties"]}

    def _unique(self) -> str:
        return f"7F00000112{self._number:022X}"

    def _body_size(self) -> int:
        return self._draw.choice((0, 1, 16)) if self._draw.random() < 0.1 else self._draw.randrange(20, 700)
