"""The RocketMQ versions that the tests may run: one line each, and everything else follows from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BrokerVersion:
    """A published version.

    `whole`: broker, name server and client were published too (for some versions Maven Central has the store only).
    `routine`: part of every test run; the others run where a test names them.
    """

    name: str
    whole: bool = True
    routine: bool = False


VERSIONS = (
    BrokerVersion("4.4.0"),
    BrokerVersion("4.9.7", routine=True),
    BrokerVersion("4.9.8", whole=False),
    BrokerVersion("5.1.4"),
    BrokerVersion("5.3.1", whole=False),
    BrokerVersion("5.3.3", routine=True),
    BrokerVersion("5.4.0", routine=True),
    BrokerVersion("5.5.0", routine=True),
    BrokerVersion("5.5.1", whole=False),
)
ROUTINE = tuple(version.name for version in VERSIONS if version.routine)


def version_named(name: str) -> BrokerVersion:
    for version in VERSIONS:
        if version.name == name:
            return version
    raise KeyError(f"no RocketMQ version {name} in {__name__}")
