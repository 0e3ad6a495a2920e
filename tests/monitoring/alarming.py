"""What the tests of alarms have in common: values that they set, rules, and a receiver."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from monitoring.alarms import metrics
from monitoring.alarms.measured import Subject, Value, Values
from monitoring.models import Alarm, AlarmChannel, AlarmNotification, AlarmRule, AuditFinding
from streams.models import Step, UtcNow
from streams.steps import turns

MAIL = Subject("orders", "mail")


class Dial:
    """Sets what the metric ``lag`` measures, the only one of the rules of a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        turns._ask_at.clear()
        self.values: Values | None = {}
        measured = metrics.Measure(lambda using: self.values, metrics.COUNT, 10)
        patch.setattr(metrics, "METRICS", only := {"lag": measured})
        patch.setattr("monitoring.alarms.rules.METRICS", only)
        patch.setattr("monitoring.alarms.texts.METRICS", only)

    def show(self, *numbers: float | None) -> None:
        subjects = [MAIL, *(Subject("orders", f"g{n}") for n in range(1, len(numbers)))]
        pairs = zip(subjects, numbers, strict=True)
        self.values = {subject: Value(number) for subject, number in pairs}

    def fail(self) -> None:
        self.values = None


def states() -> list[str]:
    return list(Alarm.objects.order_by("pk").values_list("state", flat=True))


def events() -> list[str]:
    return list(AlarmNotification.objects.order_by("pk").values_list("event", flat=True))


def pass_time(seconds: float) -> None:
    """Let the alarms be older: all their instants move back."""
    turns._ask_at.clear()
    back = timedelta(seconds=seconds)
    of_alarm = ("since", "fired_at", "told_at", "acknowledged_at", "resolved_at")
    fields: dict[Any, tuple[str, ...]] = {
        Alarm: of_alarm,
        AlarmNotification: ("due_at", "created_at", "sent_at"),
        AlarmRule: ("muted_until",),
        AuditFinding: ("found_at", "seen_at"),
        Step: ("last_run_at",),
    }
    for model, names in fields.items():
        for row in model._base_manager.all():
            moved = {n: getattr(row, n) - back for n in names if getattr(row, n) is not None}
            model._base_manager.filter(pk=row.pk).update(**moved)


def channel(url: str, **more: Any) -> AlarmChannel:
    values = {"name": "ops", "kind": "webhook", "url": url, "allow_private": True, **more}
    return AlarmChannel.objects.create(**values)


def alarm(**more: Any) -> Alarm:
    """Make an alarm that fires."""
    values = {
        "rule": "lag",
        "metric": "lag",
        "subject": "mail on orders",
        "topic": "orders",
        "group": "mail",
        "severity": "critical",
        "state": "firing",
        "value": 11,
        "threshold": 10,
        "fired_at": UtcNow(),
        "told_at": UtcNow(),
        **more,
    }
    made = Alarm.objects.create(**values)
    made.refresh_from_db()
    return made


class Receiver:
    """Receives webhooks on a port of this host."""

    def __init__(self, status: int, answer: bytes, headers: dict[str, str]) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *arguments: Any) -> None: ...

        self._handler = Handler
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _headers, body in self.got]


@contextmanager
def receiver(
    status: int = 200, answer: bytes = b"ok", headers: dict[str, str] | None = None
) -> Iterator[Receiver]:
    found = Receiver(status, answer, headers or {})
    found.start()
    try:
        yield found
    finally:
        found.stop()
