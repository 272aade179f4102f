"""Gets a RocketMQ version ready to run: Maven resolves its artifacts once, javac compiles the judge against them."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest

from tests.broker.versions import BrokerVersion

HERE = Path(__file__).parent
CACHE = HERE / "target"
JAVA = HERE / "java"
RESOLVE_TIMEOUT_SECONDS = 900
COMPILE_TIMEOUT_SECONDS = 300
# RocketMQ unmaps its files through the JDK's insides, which Java 17 keeps closed.
OPENED = ("java.base/sun.nio.ch", "java.base/java.nio", "java.base/jdk.internal.ref", "java.base/jdk.internal.misc")
QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Maven and javac run for seconds too, and take half the processor time by this."""
JAR: Final = "classes.jar"
_MESSAGES: Final = {"messages": [{"topic": "T", "queueId": 0, "body": "eA==", "properties": {"KEYS": "k"}}]}
_READ: Final = {"times": 1, "brief": False, "keys": [], "queues": []}
STARTS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "judge.Judge": (
        *({"op": op} for op in ("open", "start")),
        {"op": "put", **_MESSAGES},
        {"op": "waitDispatched"},
        {"op": "read", **_READ},
        {"op": "shutdown", "patient": False},
    ),
    "judge.WholeBroker": (
        {"op": "start"},
        {"op": "send", "topic": "T", "body": "eA==", "properties": {"KEYS": "k"}},
        {"op": "consume", "topic": "T"},
        {"op": "query", "topic": "T", "key": "k"},
        {"op": "stop"},
    ),
}
"""Requests by which each program loads most of the classes that it needs in any test."""


class ToolchainError(Exception):
    """Maven or javac could not do its part; the text holds what it said."""


def missing_tools() -> list[str]:
    """Which of the programs that this folder needs are not on the PATH."""
    return [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]


def require_tools() -> None:
    """Skip the test that runs where no broker can run; in CI it fails."""
    missing = ", ".join(missing_tools())
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"broker tests need {missing} on the PATH, and CI=true allows no skipping", pytrace=False)
    if missing:
        pytest.skip(f"broker tests need {missing} on the PATH")


def java_command(version: BrokerVersion, main_class: str, scratch: Path, *options: str) -> list[str]:
    """The command line of one of our Java programs; what RocketMQ leaves in a home directory goes to `scratch`.

    Nearly all that a short run costs is its start: loaded classes come from an archive, and code that runs for seconds
    is not worth Java's second compiler.
    """
    with _busy(version) as folder:
        _resolve(version, folder)
        _compile(version, folder)
        archive = folder / f"{main_class}.jsa"
        if main_class in STARTS:
            _archive(version, folder, main_class, archive)
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto") if archive.exists() else ()
    return [*_java(folder, scratch), *shared, *options, main_class]


def _java(folder: Path, scratch: Path) -> list[str]:
    classpath = f"{folder / JAR}:{(folder / 'classpath').read_text()}"
    return [
        "java",
        *(f"--add-{how}={package}=ALL-UNNAMED" for package in OPENED for how in ("opens", "exports")),
        *QUICK_JAVA,
        "-Xmx1g",
        "-XX:-UsePerfData",
        f"-Duser.home={scratch}",
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlogback.configurationFile={JAVA / 'logback.xml'}",
        f"-Drmq.logback.configurationFile={JAVA / 'rmq.logback.xml'}",
        "-Dtls.server.mode=disabled",  # else each start makes two RSA keys, which takes more time than all the rest
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
        "-Dfile.encoding=UTF-8",
        "-cp",
        classpath,
    ]


@contextmanager
def _busy(version: BrokerVersion) -> Iterator[Path]:
    """The version's folder, for this process alone: of two test runs the second waits and finds the work done."""
    folder = CACHE / version.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "busy").open("w") as busy:
        fcntl.lockf(busy, fcntl.LOCK_EX)
        yield folder


def _resolve(version: BrokerVersion, folder: Path) -> None:
    classpath = folder / "classpath"
    wanted = _digest([HERE / "pom.xml"], version)
    jars_there = classpath.exists() and all(Path(jar).exists() for jar in classpath.read_text().split(":"))
    if jars_there and _stamp(folder / "resolved") == wanted:
        return
    command = [
        "mvn", "-q", "-B", "-f", str(HERE / "pom.xml"),
        f"-Drocketmq.version={version.name}",
        f"-Drocketmq.artifact=rocketmq-{'broker' if version.whole else 'store'}",
        *(["-Pwhole"] if version.whole else []),
        "dependency:build-classpath", f"-Dmdep.outputFile={classpath}",
    ]  # fmt: skip
    _run(command, RESOLVE_TIMEOUT_SECONDS)
    (folder / "resolved").write_text(wanted)


def _compile(version: BrokerVersion, folder: Path) -> None:
    sources = [
        source
        for source in sorted((JAVA / "judge").glob("*.java"))
        if version.whole or not source.name.startswith("Whole")
    ]
    wanted = _digest([*sources, folder / "resolved"], version)
    if _stamp(folder / "compiled") == wanted and (folder / JAR).exists():
        return
    classes = folder / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    for archive in folder.glob("*.jsa"):
        archive.unlink()
    command = [
        "javac", *(f"-J{option}" for option in QUICK_JAVA), "-nowarn", "-proc:none", "-encoding", "UTF-8",
        "-cp", (folder / "classpath").read_text(), "-d", str(classes), *map(str, sources),
    ]  # fmt: skip
    _run(command, COMPILE_TIMEOUT_SECONDS)
    with ZipFile(folder / JAR, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))
    (folder / "compiled").write_text(wanted)


def _archive(version: BrokerVersion, folder: Path, main_class: str, archive: Path) -> None:
    """Keep what classes the program loads in a short run; where that fails, each start loads them itself."""
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(prefix=f"rocketmq-{version.name}-") as scratch:
        topics = {"T": {"readQueueNums": 1, "writeQueueNums": 1}}
        store = {"directory": f"{scratch}/store", "config": {}, "topics": topics, "store": "0", "port": 0}
        requests = [{"id": number, **store, **request} for number, request in enumerate(STARTS[main_class])]
        options = (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable")
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*_java(folder, Path(scratch)), *options, main_class],
                input="".join(json.dumps(request) + "\n" for request in requests),
                capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS, check=False,
            )  # fmt: skip


def _run(command: list[str], timeout_seconds: int) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, check=False,
            env=os.environ | {"MAVEN_OPTS": f"{' '.join(QUICK_JAVA)} {os.environ.get('MAVEN_OPTS', '')}"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as trouble:
        raise ToolchainError(f"{command[0]} did not end within {timeout_seconds} s") from trouble
    if done.returncode != 0:
        raise ToolchainError(f"{' '.join(command[:6])} ... failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def _digest(files: list[Path], version: BrokerVersion) -> str:
    content = hashlib.sha256(repr(version).encode())
    for file in files:
        content.update(file.name.encode() + file.read_bytes())
    return content.hexdigest()


def _stamp(file: Path) -> str | None:
    return file.read_text() if file.exists() else None
