"""What a Python process of a Spark executor is spared, task by task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_what_is_loaded() -> None:
    """Leave what is loaded now out of later garbage collections; called at the end of each task, and done once.

    A worker of `pyspark.daemon` collects garbage after each task. That looks at every object of numpy, numba and Arrow
    each time, and takes longer than scanning a hundred megabytes of a log.
    """
    gc.collect()
    gc.freeze()
