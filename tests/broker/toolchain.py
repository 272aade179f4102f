"""Gets a RocketMQ version ready to run: Maven resolves its artifacts once, javac compiles the judge against them."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.broker.versions import BrokerVersion

HERE = Path(__file__).parent
CACHE = HERE / "target"
JAVA = HERE / "java"
RESOLVE_TIMEOUT_SECONDS = 900
COMPILE_TIMEOUT_SECONDS = 300
# RocketMQ unmaps its files through the JDK's insides, which Java 17 keeps closed.
OPENED = ("java.base/sun.nio.ch", "java.base/java.nio", "java.base/jdk.internal.ref", "java.base/jdk.internal.misc")


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
    """The command line of one of our Java programs; what RocketMQ leaves in a home directory goes to `scratch`."""
    folder = prepared(version)
    classpath = f"{folder / 'classes'}:{(folder / 'classpath').read_text()}"
    return [
        "java",
        *(f"--add-{how}={package}=ALL-UNNAMED" for package in OPENED for how in ("opens", "exports")),
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        f"-Duser.home={scratch}",
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlogback.configurationFile={JAVA / 'logback.xml'}",
        f"-Drmq.logback.configurationFile={JAVA / 'rmq.logback.xml'}",
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
        "-Dfile.encoding=UTF-8",
        "-cp",
        classpath,
        *options,
        main_class,
    ]


def prepared(version: BrokerVersion) -> Path:
    """The version's folder with `classpath` and `classes`, made where it is missing or out of date."""
    folder = CACHE / version.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "busy").open("w") as busy:
        fcntl.lockf(busy, fcntl.LOCK_EX)  # two test runs at once: the second waits and finds the work done
        _resolve(version, folder)
        _compile(version, folder)
    return folder


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
    if _stamp(folder / "compiled") == wanted:
        return
    classes = folder / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    command = [
        "javac", "-nowarn", "-proc:none", "-encoding", "UTF-8",
        "-cp", (folder / "classpath").read_text(), "-d", str(classes), *map(str, sources),
    ]  # fmt: skip
    _run(command, COMPILE_TIMEOUT_SECONDS)
    (folder / "compiled").write_text(wanted)


def _run(command: list[str], timeout_seconds: int) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
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
