"""The exit codes of every command; errors bring their own (`errors`). Where several apply: 130 > 5 > 4 > 3 > 0."""

from typing import Final

CRASHED: Final = 1
"""The tool itself is at fault."""
FINDINGS: Final = 3
"""Findings above a note remain, two stores differ, messages were refused, or there is something to do."""
FAILED: Final = 4
"""It could not be done, or not all could be read."""
INTERRUPTED: Final = 130
