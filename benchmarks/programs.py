"""Programs that benchmarks run as processes of their own."""

COUNTED = """
import re, sys
from pathlib import Path
from rmqtool.commands.app import run
from rmqtool.scan.freed_memory import keep_freed_memory
keep_freed_memory()
code = run(sys.argv[2:])
read = re.search("^rchar: (.+)", Path("/proc/self/io").read_text(), re.MULTILINE)[1]
Path(sys.argv[1]).write_text(read)
sys.exit(code)
"""
"""Runs a command as `rmqtool` does, and leaves the bytes that its process has read, those of the program too."""
KERNELS = """
import time
from numpy import zeros
start = time.process_time()
from rmqtool.scan.compiled import load_kernel
load_kernel()
load_kernel("rmqtool.engine.dispatch.index_kernel")
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
load_kernel()
load_kernel("rmqtool.engine.dispatch.index_kernel")
files = list(log_files(Path(sys.argv[1]) / "commitlog"))
with ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda part: scan.over_blocks(part, crc32), (files[::2], files[1::2])))
"""
"""What each command that checks a log must do at least: start, load kernels, compute CRC over it in two threads."""
