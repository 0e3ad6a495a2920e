"""Says what JSON each server stores in a column, which is less than a body may have."""

from __future__ import annotations

from typing import Any

from streams.rules.body import NESTING
from streams.rules.errors import InvalidMessage

# The deepest nesting: MariaDB takes less than 32 levels, MySQL 100.
MAX_DEPTH = 30
# A larger number is not JSON for MySQL.
MAX_NUMBER = 10**308


def check_storable(value: Any, what: str) -> None:
    """Check that each server stores ``value``, which can be written as JSON, in a column.

    ``what`` begins the text of the error, with its verb: “The context is”. Raises InvalidMessage.
    """
    if not _is_storable(value, MAX_DEPTH):
        raise InvalidMessage(
            f"{what} nested deeper than {MAX_DEPTH} levels, or a number in it is too large."
        )


def _is_storable(value: Any, levels: int) -> bool:
    if isinstance(value, int):
        return abs(value) < MAX_NUMBER
    if isinstance(value, NESTING):
        parts = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_storable(part, levels - 1) for part in parts)
    return True
