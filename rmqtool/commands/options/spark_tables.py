"""Shared parts of `export`, `stats` and `search`: several stores, and the options of the data source for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from rmqtool.commands.messages import Messages
from rmqtool.commands.options.completion import topics
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.store import TIME_FORMS, StoreOptions, open_store, timestamp_ms
from rmqtool.commands.options.topic_names import absent_topics
from rmqtool.errors import RmqtoolError, UsageError
from rmqtool.memory import memory_budget, settle
from rmqtool.store.location import is_url, relative_to_store, store_location

_BRACES: Final = re.compile(r"\{[^{}]*,[^{}]*\}")

StorePaths = Annotated[
    list[str], typer.Argument(metavar="STORE...", help="Store roots, quoted patterns of store roots, or URLs.")
]
ReadStores = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="Store root of the broker: the directory that holds commitlog/; or a URL: s3://, hdfs://, ... "
        "Several roots, or a quoted pattern of them.",
    ),
]
TopicOption = Annotated[
    list[str] | None, option("--topic T", "Only messages of this topic (a pattern); repeatable.", autocompletion=topics)
]
FromTimeOption = Annotated[
    str | None, option("--from-time TIME", f"Messages stored at or after this time: {TIME_FORMS}.")
]
ToTimeOption = Annotated[str | None, option("--to-time TIME", "Messages stored before this time.")]


def name_several(stores: list[str]) -> bool:
    """Whether words of a command line may name several stores; a pattern does, however many there are."""
    if len(stores) > 1:
        return True
    [text] = stores
    if is_url(text):  # whose `?` starts its options, and whose host may have brackets
        path, patterns = text.partition("://")[2].partition("/")[2].partition("?")[0], "*["
    else:
        path, patterns = text, "*?["
    is_pattern = any(sign in path for sign in patterns) or bool(_BRACES.search(path))
    return is_pattern and (is_url(text) or not Path(text).exists())


def warn_of_absent_topics(
    stores: list[str], commitlog: list[Path] | None, patterns: list[str] | None, messages: Messages
) -> None:
    """Name the topics that none of the stores has, where nothing was found; patterns of stores are left out."""
    options = StoreOptions(commitlog)
    with suppress(RmqtoolError):
        opened = [open_store(store_location(store), options).store for store in stores] if patterns else []
        for text in absent_topics(opened, patterns or ()):
            messages.warn(text)


def reads_here(options: Mapping[str, str], master: str | None, conf: list[str] | None) -> bool:
    """Whether the logs are so small that this process has read them before Spark has started; a master asks for Spark.

    Errors are those of options and paths, and UnsupportedError if pyarrow is missing, or for Spark pyspark.
    """
    from rmqtool.pipeline.stores import LOG_BYTES_MAX, checked_stores, log_bytes

    stores = checked_stores(options)  # before Spark starts for stores that are none
    files = sum(len(entries) for store in stores for entries in store.files.values())
    settle("this store" if len(stores) == 1 else "these stores together", files)
    # Spark's processes would not keep to a limit that a person chose.
    is_small = log_bytes(stores) <= LOG_BYTES_MAX or memory_budget().is_chosen
    return master is None and not conf and is_small


def source_options(
    stores: list[str],
    commitlog: list[Path] | None,
    topic: list[str] | None = None,
    from_time: str | None = None,
    to_time: str | None = None,
) -> dict[str, str]:
    """Options of the data source; UsageError for a wrong time, a topic with a comma, or one log for several stores."""
    options = {"paths": json.dumps(stores)}
    if topic:
        if any("," in name for name in topic):
            raise UsageError("--topic: a topic's name has no comma; repeat the option for several topics")
        options["topics"] = ",".join(topic)
    if (from_ms := timestamp_ms(from_time, "--from-time")) is not None:
        options["from_time_ms"] = str(from_ms)
    if (to_ms := timestamp_ms(to_time, "--to-time")) is not None:
        options["to_time_ms"] = str(to_ms)
    if commitlog:
        if len(stores) > 1:
            raise UsageError("--commitlog works with one store only")
        options["commitlog"] = ",".join(relative_to_store(named, Path(stores[0])) for named in commitlog)
    return options
