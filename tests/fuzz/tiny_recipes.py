"""Recipes of stores that are as small as stores of several files go, so that thousands are verified in a minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.rules.broker_rules import MultiDispatch
from rmqtool.fixtures.recipe import BATCH_QUEUES, End, Recipe, Run, TopicSpec
from rmqtool.fixtures.samples import Samples
from rmqtool.formats import properties as names

LOG_FILE_SIZE: Final = 4096
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "100",
    "maxHashSlotNum": "10",
    "maxIndexNum": "20",
}
_TOPICS: Final = {"orders": TopicSpec(), "payments": TopicSpec()}


def _plain(samples: Samples) -> Sequence[Run]:
    return [Run(samples.messages(14, tuple(_TOPICS), 2))]


def _crashed(samples: Samples) -> Sequence[Run]:
    return [Run(samples.messages(8, tuple(_TOPICS), 2)), Run(samples.messages(4, tuple(_TOPICS), 2), End.KILLED)]


def _undispatched(samples: Samples) -> Sequence[Run]:
    return [
        Run(samples.messages(8, tuple(_TOPICS), 2)),
        Run(samples.messages(4, tuple(_TOPICS), 2), End.KILLED_BEFORE_DISPATCH),
    ]


def _delay(samples: Samples) -> Sequence[Run]:
    later = (samples.message("orders", 0, properties={names.DELAY_LEVEL: str(level)}) for level in (1, 3, 18))
    return [Run([*samples.messages(4, tuple(_TOPICS), 2), *later])]


def _inner_batch(samples: Samples) -> Sequence[Run]:
    puts: list[Message | MessageBatch] = []
    for number in range(6):
        puts += [samples.batch("packed", 0, number + 1, is_inner=True), *samples.messages(1, tuple(_TOPICS), 2)]
    return [Run(puts)]


def _lmq(samples: Samples) -> Sequence[Run]:
    queues = ("%LMQ%a", "%LMQ%a,%LMQ%b")
    return [Run([samples.message("orders", 0, properties={names.MULTI_DISPATCH: queues[n % 2]}) for n in range(8)])]


TINY: Final = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="tiny", about="plain messages", runs=_plain, settings=_SETTINGS, topics=_TOPICS),
        Recipe(name="tiny-crashed", about="killed", runs=_crashed, settings=_SETTINGS, topics=_TOPICS),
        Recipe(name="tiny-undispatched", about="killed early", runs=_undispatched, settings=_SETTINGS, topics=_TOPICS),
        Recipe(
            name="tiny-delay",
            about="delay levels",
            runs=_delay,
            settings=_SETTINGS,
            topics={**_TOPICS, names.SCHEDULE_TOPIC: TopicSpec(18)},
        ),
        Recipe(
            name="tiny-record-crc",
            about="a CRC over each record",
            runs=_plain,
            settings={**_SETTINGS, "enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"},
            topics=_TOPICS,
            fits=lambda rules: rules.record_crc,
        ),
        Recipe(
            name="tiny-inner-batch",
            about="batch queues",
            runs=_inner_batch,
            settings={**_SETTINGS, "mapperFileSizeBatchConsumeQueue": "92"},
            topics={**_TOPICS, "packed": TopicSpec(2, BATCH_QUEUES)},
            fits=lambda rules: rules.inner_batch and rules.batch_queues,
        ),
        Recipe(
            name="tiny-lmq",
            about="light queues",
            runs=_lmq,
            settings={**_SETTINGS, "enableLmq": "true", "enableMultiDispatch": "true"},
            topics=_TOPICS,
            fits=lambda rules: rules.multi_dispatch is not MultiDispatch.NONE,
        ),
    )
}
"""By name."""
