"""docs/reference/logs.md lists every event that EMS writes to the log, and each is written."""

from __future__ import annotations

import ast
import json
import logging
import logging.config
from collections.abc import Iterator
from typing import Any

from streams.logs import JsonFormatter
from tests.docs.documents import DOCS, ROOT, blocks, section, table

LOGS = DOCS / "reference" / "logs.md"
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
LOGGERS = {"logger", "broadcast"}
# Of the events whose level is chosen when they are written.
CHOSEN = {"alarm.fired": "info, warning or error", "failures.withheld": "warning or error"}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield every logging call of the packages, with its place."""
    for package in ("streams", "monitoring"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id in LOGGERS
                    and node.func.attr in LEVELS
                ):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def event_of(call: ast.Call) -> str | None:
    """Return the name in ``extra=event("name", …)``."""
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg == "extra" and isinstance(value, ast.Call):
            assert isinstance(value.func, ast.Name)
            if value.func.id == "event" and isinstance(value.args[0], ast.Constant):
                return str(value.args[0].value)
    return None


def level_of(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    names = {"exception": "error", "log": CHOSEN.get(event_of(call) or "", "log")}
    return names.get(call.func.attr, call.func.attr)


def test_every_logging_call_has_an_event() -> None:
    assert [place for place, call in calls() if event_of(call) is None] == []


def test_the_events_and_their_levels_are_those_of_the_page() -> None:
    written = {(event_of(call), level_of(call)) for _place, call in calls()}
    assert set(table(LOGS, "Events").items()) == written


def test_no_logger_is_called_by_another_name() -> None:
    """Otherwise the tests above would not see its calls."""
    for package in ("streams", "monitoring"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign) and "getLogger" in ast.dump(node.value):
                    names = {t.id for t in ast.walk(node) if isinstance(t, ast.Name)}
                    assert names & LOGGERS or path.name == "console.py", path


def test_the_logging_of_the_page_writes_a_record_like_the_one_of_the_page(
    capsys: Any,
) -> None:
    names: dict[str, Any] = {}
    exec(blocks(LOGS, "python")[0], names)  # noqa: S102 - of the page
    shown = json.loads(section(LOGS, "LOGGING").split("```json")[1].split("```")[0])
    root = logging.getLogger("streams")
    try:
        logging.config.dictConfig(names["LOGGING"])
        assert isinstance(root.handlers[0].formatter, JsonFormatter)
        extra = {name: value for name, value in shown.items() if name.startswith("ems_")}
        logging.getLogger(shown["logger"]).warning(shown["message"], extra=extra)
    finally:
        root.handlers.clear()
        root.propagate, root.level = True, logging.NOTSET
        root.manager._clear_cache()  # type: ignore[attr-defined]
    written = json.loads(capsys.readouterr().err)
    assert {**written, "time": ""} == {**shown, "time": ""}
