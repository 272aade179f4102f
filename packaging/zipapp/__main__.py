"""The first code of the one file: finds a Python that the file has wheels for, then hands over to `unpack.py`.

Any Python from 3.6 on reads this module, so that an old one ends with a sentence and not with a syntax error.
"""

import json
import os
import sys
import zipfile
from pathlib import Path

ARCHIVE = str(Path(__file__).absolute().parent)


def fits(targets: dict) -> bool:
    """Whether the file has wheels for the Python that runs."""
    plain = sys.implementation.name == "cpython" and "t" not in sys.abiflags and sys.maxsize > 2**32
    return plain and f"{sys.version_info[0]}.{sys.version_info[1]}-{os.uname().machine}" in targets


def others(targets: dict) -> list:
    """Pythons on the PATH that the file has wheels for, the newest first."""
    versions = sorted({target.partition("-")[0] for target in targets}, key=lambda text: int(text.partition(".")[2]))
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [Path(folder, f"python{version}") for version in reversed(versions) for folder in folders]
    return [str(path) for path in paths if path.is_file() and os.access(str(path), os.X_OK)]


def start() -> None:
    """Run rmqtool here, in another Python, or say what is missing."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        contents = json.loads(archive.read("contents.json").decode("utf-8"))
    targets = contents["targets"]
    if fits(targets):
        from unpack import run  # the module beside this one, inside the file

        run(ARCHIVE, contents)
    tried = os.environ.pop("RMQTOOL_STARTED_BY", "")
    paths = [] if tried else others(targets)
    if paths:
        os.environ["RMQTOOL_STARTED_BY"] = sys.executable
        os.execv(paths[0], [paths[0], ARCHIVE, *sys.argv[1:]])  # noqa: S606 - no shell is what is meant
    has = f"{sys.implementation.name} {sys.version.split()[0]} on {os.uname().machine}"
    sys.stderr.write(
        f"rmqtool: this file runs on {described(targets)}; this is {has}, and the PATH has no other. "
        f"Install one, and start the file with it: PYTHON {ARCHIVE}\n"
    )
    sys.exit(4)


def described(targets: dict) -> str:
    """Such as `CPython 3.11, 3.12 on x86_64 and CPython 3.12 on aarch64`."""
    machines = {}
    for target in targets:
        version, _, machine = target.partition("-")
        machines.setdefault(machine, []).append(version)
    return " and ".join(f"CPython {', '.join(versions)} on {machine}" for machine, versions in machines.items())


try:
    start()
except KeyboardInterrupt:  # before the commands are there, which answer it themselves
    sys.exit(130)
