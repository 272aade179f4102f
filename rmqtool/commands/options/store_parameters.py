"""The options that say how a store is opened, written once: a command takes them as one `StoreOptions`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from rmqtool.commands.options.store import (
    BrokerConfOption,
    BrokerVersionOption,
    CommitlogOption,
    IndexEntriesOption,
    IndexSlotsOption,
    LogFileSizeOption,
    QueueFileSizeOption,
    StoreOptions,
    file_sizes,
)

T = TypeVar("T")
STORE_OPTIONS: Final = "store_options"
"""The parameter that stands for them."""
FILE_SIZES: Final = ("log_file_size", "queue_file_size", "index_entries")


def _given(
    commitlog: CommitlogOption = None,
    log_file_size: LogFileSizeOption = None,
    queue_file_size: QueueFileSizeOption = None,
    index_slots: IndexSlotsOption = None,
    index_entries: IndexEntriesOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
) -> StoreOptions:
    sizes = file_sizes(log_file_size, queue_file_size, index_entries)
    return StoreOptions(commitlog, index_slots, broker_conf, broker_version, sizes)


def with_store_options(*left_out: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a command, which has each option in its signature, of a function that takes `store_options`.

    Args:
        left_out: options that the command does not have, named as parameters.
    """
    options = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(_given, eval_str=True).parameters.items()
        if name not in left_out
    }

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def command(*arguments: Any, **given: Any) -> T:
            store_options = _given(**{name: given.pop(name, None) for name in options})
            return function(*arguments, **given, **{STORE_OPTIONS: store_options})

        signature = inspect.signature(function, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if name == STORE_OPTIONS:
                parameters += options.values()
            else:
                is_behind = bool(parameters) and parameters[-1].kind is inspect.Parameter.KEYWORD_ONLY
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) if is_behind else parameter)
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate
