"""File sizes that nothing in a store proves: what is assumed, as sentences, and where an assumption will not do."""

from __future__ import annotations

from typing import Final

from rmqtool.errors import UnknownSizeError
from rmqtool.store.directory import Store
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE

SIZE_UNKNOWN: Final = (
    "nothing shows the size of a full file, on which it depends whether a broker starts; give it with --log-file-size "
    "BYTES or --broker-conf FILE"
)
"""Why the log of a store is not judged to its end."""


def size_assumptions(store: Store) -> tuple[str, ...]:
    """File sizes that are taken for the broker's, though nothing in the store proves them, as sentences."""
    if not store.loadable_log:
        return ()
    size, assumptions = store.log_file_size, []
    if not size.is_shown:
        is_lone = len({segment.start for segment in store.loadable_log}) == 1
        assumptions.append(
            f"the {'only' if is_lone else 'first'} commit log file has {store.loadable_log[0].size} bytes, and nothing "
            f"shows whether that is the size of a full file, which is taken to have {size.bytes}; "
            "pass --log-file-size BYTES or --broker-conf FILE for another size"
        )
    elif not size.is_proven and size.bytes != DEFAULT_LOG_FILE_SIZE:
        assumptions.append(
            f"only the length of the only commit log file shows the file size, {size.bytes} bytes: a broker that "
            f"is configured "
            f"for another one, such as the default {DEFAULT_LOG_FILE_SIZE}, does not start, or does not read the file"
        )
    has_no_size = store.queue_database is None and not store.loadable_queues
    if has_no_size and not store.uses_default_sizes and not store.settings.consumequeue_file_size:
        assumptions.append(
            f"no file shows the size of a queue file: the default {DEFAULT_QUEUE_FILE_SIZE} is assumed; "
            "pass --queue-file-size BYTES or --broker-conf FILE for another size"
        )
    return tuple(assumptions)


def is_log_file_size_known(store: Store) -> bool:
    """Whether the files show the size of a full one, or that the only one is shorter than that."""
    return not store.loadable_log or store.log_file_size.is_shown or store.log_file_size.is_cut


def demand_log_file_size(store: Store, options: str) -> None:
    """Refuse to say what a broker does with a lone log file whose length is no likely size.

    Args:
        options: those that give the size.

    Raises:
        UnknownSizeError: nothing shows the size.
    """
    if not is_log_file_size_known(store):
        segment = store.loadable_log[0]
        raise UnknownSizeError(
            f"{segment.path}: {segment.size} bytes, and nothing shows whether that is the size of a full file, so "
            f"whether a broker would start is not known; give the size with {options}",
            "commitlog_file_size",
            store.commitlog_file_size,
        )
