"""The exit codes of every command, one table: docs/exit-codes.md says what each means, command by command.

Where several apply: 130 > 141 > 5 > 4 > 3 > 6 > 0. Errors bring their own (`errors`), with the same numbers.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command."""

    OK = 0
    """Done, or nothing was found and everything that a broker uses was looked at."""
    CRASHED = 1
    """The tool itself is at fault."""
    USAGE = 2
    """The command line contradicts itself, or a value does not parse."""
    FINDINGS = 3
    """Something was found or is to be done, a start would lose messages or fail, or not all could be checked."""
    FAILED = 4
    """It could not be done, or not all could be read."""
    REFUSED = 5
    """Refused for safety: a broker uses the store, consent is missing, the store has changed."""
    NOT_FOUND = 6
    """`get` and `search` found no message."""
    INTERRUPTED = 130
    UNREAD = 141
    """Nobody read the output any more before the check had ended, so that there is no verdict; as SIGPIPE ends one."""
