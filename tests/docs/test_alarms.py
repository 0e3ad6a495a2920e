"""docs/guides/alarms.md: its table has the default rules, and its receiver receives."""

from __future__ import annotations

import threading
from http.server import HTTPServer
from typing import Any

import pytest

from monitoring.alarms.delivering import LADDER, send_test
from monitoring.alarms.metrics import METRICS
from monitoring.models import AlarmNotification
from tests.docs.documents import DOCS, files, section
from tests.monitoring.alarming import channel

GUIDE = DOCS / "guides" / "alarms.md"


def test_the_table_has_every_default_rule() -> None:
    lines = [line for line in section(GUIDE, "The rules").splitlines() if line.startswith("| `")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    shown = {name: tuple(rest) for name, _text, *rest in cells}
    assert shown == {
        name: (
            f"{measured.threshold:.12g}",
            f"{measured.for_seconds} s",
            str(measured.severity),
            "on" if measured.enabled else "off",
        )
        for name, measured in METRICS.items()
    }


def test_the_ladder_is_that_of_the_text() -> None:
    assert LADDER == (10, 30, 60, 120, 300, 600, 1800, 3600)
    assert "after 10 s, 30 s, 1, 2, 5, 10 and 30 min, then every hour" in section(GUIDE, "Channels")


@pytest.mark.django_db(transaction=True)
def test_the_receiver_takes_what_is_signed_and_nothing_else(capsys: Any) -> None:
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(files(GUIDE)["receiver.py"], names)  # noqa: S102 - of the page
    names["Receiver"].log_message = lambda *arguments: None
    server = HTTPServer(("127.0.0.1", 0), names["Receiver"])
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        right = channel(url, name="right", secret=names["SECRET"].decode())
        wrong = channel(url, name="wrong", secret="another")
        unsigned = channel(url, name="unsigned")
        assert send_test(right, "default") == ""
        assert "403" in send_test(wrong, "default")
        assert "403" in send_test(unsigned, "default")
    finally:
        server.shutdown()
        server.server_close()
    assert names["seen"] == {AlarmNotification.objects.get(channel=right).uid}
    assert "test EMS: a test of this channel" in capsys.readouterr().out
