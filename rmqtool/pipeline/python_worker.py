"""Speed up the Python processes of Spark executors, task by task."""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

from rmqtool.memory import keep_freed_memory


@cache
def keep_what_is_loaded() -> None:
    """Exclude all loaded objects from later garbage collections, and keep freed memory for the next task.

    Called at the end of each task, and done once.

    A worker of `pyspark.daemon` collects garbage after each task. That looks at every object of numpy, numba and Arrow
    each time, and takes longer than scanning a hundred megabytes of a log.
    """
    gc.collect()
    gc.freeze()
    keep_freed_memory()
    # A worker forgets what importers know before each task (`setup_spark_files`), and an archive then lists its files
    # again in plain Python: pyspark's has 2,000, which takes 0.1 s and more. No archive changes while a job runs.
    for importer in sys.path_importer_cache.values():
        if isinstance(importer, zipimporter):
            setattr(importer, "invalidate_caches", lambda: None)  # noqa: B010 - a method of one object alone
