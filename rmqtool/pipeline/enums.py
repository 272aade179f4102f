"""What a person chooses by name: tables, profiles, forms, groups, places to search. Light, for commands list them."""

from __future__ import annotations

from enum import StrEnum


class TableName(StrEnum):
    """The tables."""

    MESSAGES = "messages"
    CONSUMEQUEUE = "consumequeue"
    INDEX = "index"
    FINDINGS = "findings"


class Profile(StrEnum):
    """Which columns messages have."""

    HEADERS = "headers"
    PROPERTIES = "properties"
    FULL = "full"


class Form(StrEnum):
    """How an export writes rows."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    ICEBERG = "iceberg"
    DELTA = "delta"


class By(StrEnum):
    """What messages are counted by."""

    STORE = "store"
    TOPIC = "topic"
    QUEUE = "queue"
    TAG = "tag"
    HOUR = "hour"
    PRODUCER = "producer"
    SIZE = "size"


class Where(StrEnum):
    """What is searched."""

    BODY = "body"
    KEYS = "keys"
    PROPERTIES = "properties"
