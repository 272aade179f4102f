"""A root directory as a container has it: a Python, the C libraries, `env`, and nothing that can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

SCRIPT: Final = r"""
set -e
root=$1 prefix=$2 file=$3 store=$4 writable=$5
shift 5
mount -t tmpfs none "$root"
bind() { mkdir -p "$root$2"; mount --rbind "$1" "$root$2"; }
bind_file() { mkdir -p "$root${2%/*}"; : >"$root$2"; mount --bind "$1" "$root$2"; }
for folder in /usr/lib /usr/lib64 /lib /lib64; do
  if [ -L "$folder" ]; then ln -s "$(readlink "$folder")" "$root$folder"
  elif [ -d "$folder" ]; then bind "$folder" "$folder"; fi
done
mkdir -p "$root/usr/bin"
[ "$prefix" = /usr ] || bind "$prefix" "$prefix"
bind_file "$(readlink -f /usr/bin/env)" /usr/bin/env
ln -s "$PYTHON" "$root/usr/bin/python3"
bind_file /dev/null /dev/null
bind_file /dev/urandom /dev/urandom
bind_file "$file" /opt/rmqtool
bind "$store" /store
mount -o remount,ro,bind "$root/store"
mount -o remount,ro,bind "$root/opt/rmqtool"
if [ -n "$writable" ]; then mkdir -p "$root$writable"; mount -t tmpfs none "$root$writable"; fi
mount -o remount,ro "$root"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin LANG=C.UTF-8 TZ=UTC "$@"
"""


def unshare() -> list[str]:
    """How to get mounts and a network of one's own; without root, as a user that is root only there."""
    return ["unshare", "--mount", "--net", "--fork", *([] if os.geteuid() == 0 else ["--map-root-user"])]


@cache
def is_possible() -> bool:
    """Whether this machine lets us."""
    command = [*unshare(), "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_bare(
    folder: Path, file: Path, store: Path, arguments: list[str], *, writable: str = "", python: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the file as `/opt/rmqtool`, with a store at `/store`; only `writable` can be written."""
    python = python or str(Path(sys.base_prefix, f"bin/python3.{sys.version_info[1]}"))
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    variables = [f"{name}={value}" for name, value in more.items()]
    return subprocess.run(
        [
            *unshare(),
            "sh",
            "-c",
            SCRIPT,
            "sh",
            folder,
            prefix,
            file,
            store,
            writable,
            *variables,
            "/opt/rmqtool",
            *arguments,
        ],
        env=os.environ | {"PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
