"""Says who decides about prepared messages, and what logs and signals tell of one."""

from __future__ import annotations

from typing import Any

from streams.models import PreparedRow
from streams.produce.identity import producer_name

# Who has decided is kept with one of these before it.
CALLER, CHECK, TOKEN, OPERATOR = "caller:", "check:", "token:", "operator:"


def caller() -> str:
    """Return who decides when a caller does: the name of this thread."""
    return CALLER + producer_name()


def about(row: PreparedRow, using: str) -> dict[str, Any]:
    """Return what the log says of a prepared message."""
    return {"biz": row.biz, "biz_key": row.biz_key, "topic": row.topic, "database": using}


def told(row: PreparedRow, using: str) -> dict[str, Any]:
    """Return the arguments of the signals."""
    return {"biz": row.biz, "biz_key": row.biz_key, "topic": row.topic, "using": using}
