"""Every exception of rmqtool, under one root; each class owns the exit code it ends a command with.

A fault *in a store* is a finding, which is data; an error means that the tool cannot continue.
"""


class RmqtoolError(Exception):
    """Root of all errors; its text is one line that a person can act on."""

    exit_code = 4


class UsageError(RmqtoolError):
    """The command line contradicts itself, or a value does not parse."""

    exit_code = 2


class NotAStoreError(RmqtoolError):
    """The path holds no RocketMQ store, or none of a kind that can be read."""


class UnreadableError(RmqtoolError):
    """The operating system does not give the bytes: missing, no permission, I/O error."""


class WriteError(RmqtoolError):
    """The bytes cannot be written: disk full, no permission, I/O error, or a name that leads out of the store."""


class UnsupportedError(RmqtoolError):
    """The store, file or option is recognized, but not handled."""


class RefusedError(RmqtoolError):
    """Refused for safety: lock held, consent missing, store changed since it was planned."""

    exit_code = 5


class DamageError(RmqtoolError):
    """A row is not sound, and the mode says that the reading ends there."""


class DataLossError(RmqtoolError):
    """Records are gone that a stream has not read, and the options say that it ends there."""


class ConnectionLostError(RmqtoolError):
    """A broker or name server cannot be reached, or does not answer.

    Attributes:
        was_sent: whether the request may have reached it.
    """

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class FrameError(RmqtoolError):
    """Bytes are no frame of the remoting protocol, or one that is too long to be sent."""


class AnswerError(RmqtoolError):
    """A broker or name server refuses, or its response is invalid.

    Attributes:
        code: of the answer; None where it cannot be understood.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class UnknownSizeError(RefusedError):
    """A repair needs a file size that nothing in the store shows: a guess could keep the broker from starting.

    Attributes:
        setting: its name in the settings of a store.
        default: the broker's default for it.
    """

    def __init__(self, text: str, setting: str, default: int) -> None:
        super().__init__(text)
        self.setting = setting
        self.default = default


def how_to_install(extra: str) -> str:
    """Advice for an error where the libraries of an extra are not installed."""
    return f"install rmqtool[{extra}] (from a checkout: pip install '.[{extra}]')"
