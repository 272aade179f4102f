"""A topic's name: bytes in a record, text as the name of its directory.

What is no UTF-8 is kept as the file system keeps it, by half surrogates.
"""


def topic_text(name: bytes) -> str:
    """The name of a topic's directory, from the topic as records hold it."""
    return name.decode("utf-8", "surrogateescape")


def topic_bytes(name: str) -> bytes:
    """A topic as records hold it, from the name of its directory."""
    return name.encode("utf-8", "surrogateescape")
