"""Names of topics and queues: bytes in a record, text as the name of a directory.

What is no UTF-8 is kept as the file system keeps it, by half surrogates.
"""

QueueName = tuple[str, int]
"""A queue as its directories name it: topic and queue id."""
QueueKey = tuple[bytes, int]
"""A queue as records name it."""
TypedQueueKey = tuple[bytes, int, bool]
"""Key of a queue, with True for a batch queue: a topic that changed its type has queues of both."""


def topic_text(name: bytes) -> str:
    """The name of a topic's directory, from the topic as records hold it."""
    return name.decode("utf-8", "surrogateescape")


def topic_bytes(name: str) -> bytes:
    """A topic as records hold it, from the name of its directory."""
    return name.encode("utf-8", "surrogateescape")


def queue_name(topic: bytes, queue_id: int) -> QueueName:
    """A queue as its directories name it."""
    return topic_text(topic), queue_id


def queue_key(topic: str, queue_id: int) -> QueueKey:
    """A queue as records name it."""
    return topic_bytes(topic), queue_id


def unsafe_name(name: str) -> bool:
    """True if a topic's name leads anywhere but to a directory of its own."""
    return name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode("utf-8", "surrogateescape")) > 255
