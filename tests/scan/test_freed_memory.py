"""What is freed stays with the process, where the C library is glibc."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from rmqtool.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(10 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """How often the kernel gave memory anew for twenty arrays of 10 MiB, one after the other."""
    # What glibc begins with; left alone, it may come to another number by itself.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, env=environment
    )
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_arrays_get_the_pages_of_those_before() -> None:
    given_back = faults("give-back")
    assert given_back >= 20
    assert faults("keep") < given_back / 10
