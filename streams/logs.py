"""Names what EMS writes to the log, and formats it for people and for programs.

Every record of EMS has the name of its event in ``ems_event``, and values whose names begin with
``ems_``. Names and values are stable; the text of a record is not. docs/reference/logs.md lists
them.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from django.utils.termcolors import make_style

PREFIX = "ems_"
# What OpenTelemetry's instrumentation of logging adds to a record, or EMS to that of a failure, and
# its name in JSON. The first says 0 where there is no span.
SPAN = {
    "otelTraceID": "trace_id",
    "otelSpanID": "span_id",
    "ems_trace_id": "trace_id",
    "ems_span_id": "span_id",
}
# The name of a process that is not one of several.
ONLY_PROCESS = "MainProcess"

STYLES = {
    logging.DEBUG: make_style(fg="cyan"),
    logging.WARNING: make_style(fg="yellow"),
    logging.ERROR: make_style(fg="red", opts=("bold",)),
    logging.CRITICAL: make_style(fg="red", opts=("bold",)),
}


def event(name: str, **values: Any) -> dict[str, Any]:
    """Return the ``extra`` of the log record of the event ``name``, with its values."""
    return {"ems_event": name, **{PREFIX + key: value for key, value in values.items()}}


class JsonFormatter(logging.Formatter):
    """A formatter of records as lines of JSON: the event, its values and the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.processName not in (None, ONLY_PROCESS):
            row["process"] = record.processName
        for name, value in vars(record).items():
            if name in SPAN:
                if value != "0":
                    row.setdefault(SPAN[name], value)
            elif name.startswith(PREFIX):
                row[name] = value
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str, ensure_ascii=False)


class ConsoleFormatter(logging.Formatter):
    """A formatter of records as lines with time and level, in colours if ``colored``.

    A process that is one of several is named, too.
    """

    def __init__(self, *, colored: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        style = STYLES.get(record.levelno) if self._colored else None
        return style(text) if style else text

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        if record.processName not in (None, ONLY_PROCESS):
            record.message = f"{record.processName}: {record.message}"
        return super().formatMessage(record)
