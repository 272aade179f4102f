"""Programs that benchmarks run as processes of their own, and what this process has read."""

import re
from pathlib import Path

COUNTED = """
import re, sys
from pathlib import Path
from rmqtool.commands.app import main
counted, *sys.argv[1:] = sys.argv[1:]
try:
    main()
finally:
    read = re.search("^rchar: (.+)", Path("/proc/self/io").read_text(), re.MULTILINE)[1]
    Path(counted).write_text(read)
"""
"""Runs a command as `rmqtool` does, and leaves the bytes that its process has read, those of the program too."""
KERNELS = """
import time
from numpy import zeros
start = time.process_time()
from rmqtool.scan.compiled import load_kernel
load_kernel().walk_block.load()
load_kernel("rmqtool.engine.dispatch.index_kernel").entry_slots.load()
print(time.process_time() - start)
"""
READ_ALL = """
import sys
from pathlib import Path
buffer = bytearray(1 << 20)
for path in Path(sys.argv[1]).rglob("*"):
    if path.is_file():
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
"""
LEAST = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import benchmarks.scan as scan
from benchmarks.logs import log_files
from rmqtool.scan.checksum import crc32
from rmqtool.scan.compiled import load_kernel
load_kernel().walk_block.load()
load_kernel("rmqtool.engine.dispatch.index_kernel").entry_slots.load()
files = list(log_files(Path(sys.argv[1]) / "commitlog"))
with ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda part: scan.over_blocks(part, crc32), (files[::2], files[1::2])))
"""
"""What each command that checks a log must do at least: start, load kernels, compute CRC over it in two threads."""
LEAST_BUILT = f"""{LEAST}
import os
from contextlib import closing
from rmqtool.repair.machine.digest import digest_of
from rmqtool.store.source import FileSource
block = os.urandom(1 << 20)
with open(sys.argv[2], "wb", buffering=0) as file:
    for _ in range(int(sys.argv[3]) >> 20):
        file.write(block)
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
with closing(FileSource.open(Path(sys.argv[2]))) as source:
    digest_of(source, 0, source.size)
os.unlink(sys.argv[2])
"""
"""What `rebuild --yes` must do at least: the same, and write as many bytes as queues and index have, have them on the
disk, and read them back from there for their digests. Which bytes they are it does not have to find out."""
BUILT_ONLY = """
import os, sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from rmqtool.engine.rules.versions import rules_for
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.result import BuildRequest
from rmqtool.repair.machine.digest import digest_of
from rmqtool.memory import keep_freed_memory
from rmqtool.store.directory import survey
from rmqtool.store.source import FileSource
from rmqtool.store.view import open_directory
keep_freed_memory()
store, wants = survey(open_directory(Path(sys.argv[1]))), lambda topic, queue_id: True
with TemporaryDirectory(dir=sys.argv[2]) as name:
    build(store, rules_for(sys.argv[3]), BuildRequest(wants, True), Path(name))
    for path in Path(name).rglob("*"):
        if path.is_file():
            with closing(FileSource.open(path)) as source:
                os.fsync(source.descriptor)
                os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                digest_of(source, 0, source.size)
"""
"""What `rebuild --yes` takes without its check, its forecasts and its plan: it builds, and reads back what it wrote."""


def disk_bytes_read() -> int:
    """Bytes that this process has had read from the disk, not from the page cache."""
    found = re.search("^read_bytes: (.+)", Path("/proc/self/io").read_text("ascii"), re.MULTILINE)
    assert found
    return int(found[1])
