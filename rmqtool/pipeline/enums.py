"""Choices by name: tables, profiles, forms, groups, places to search. Light, as commands list them."""

from __future__ import annotations

from enum import StrEnum


class TableName(StrEnum):
    """The tables."""

    MESSAGES = "messages"
    BUSINESS_MESSAGES = "business_messages"
    CONSUMEQUEUE = "consumequeue"
    INDEX = "index"
    FINDINGS = "findings"


class OnStoreMissing(StrEnum):
    """How a stream treats a store that is gone, or cannot be read."""

    WAIT = "wait"
    SKIP = "skip"
    FAIL = "fail"


class Profile(StrEnum):
    """Columns of messages."""

    HEADERS = "headers"
    PROPERTIES = "properties"
    FULL = "full"
    BUSINESS = "business"


class Form(StrEnum):
    """Row format of an export."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    ICEBERG = "iceberg"
    DELTA = "delta"


class By(StrEnum):
    """Group by which messages are counted."""

    STORE = "store"
    TOPIC = "topic"
    QUEUE = "queue"
    TAG = "tag"
    HOUR = "hour"
    PRODUCER = "producer"
    SIZE = "size"


class Where(StrEnum):
    """Part of a message that is searched."""

    BODY = "body"
    KEYS = "keys"
    PROPERTIES = "properties"
