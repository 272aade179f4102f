"""What a Python process of a Spark executor is spared, task by task."""

from __future__ import annotations

import gc
from functools import cache

from rmqtool.scan.freed_memory import keep_freed_memory


@cache
def keep_what_is_loaded() -> None:
    """Leave what is loaded now out of later garbage collections, and keep freed memory for the next task.

    Called at the end of each task, and done once.

    A worker of `pyspark.daemon` collects garbage after each task. That looks at every object of numpy, numba and Arrow
    each time, and takes longer than scanning a hundred megabytes of a log.
    """
    gc.collect()
    gc.freeze()
    keep_freed_memory()
