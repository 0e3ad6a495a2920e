"""The Python client, and the consumers in other languages that the guide shows, do run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams import send, send_many
from streams.api import Outgoing
from streams.http import client as module
from streams.http.client import ApiError, Client, Reject, Retry
from streams.models import DeadMessage, Delivery, RetryMessage
from tests.docs.documents import DOCS
from tests.http.servers import Web
from tests.processes import wait_for

StartWeb = Callable[..., Web]
GUIDE = DOCS / "guides" / "http.md"


def shown(language: str) -> str:
    """Return the program of the guide in a language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return next(text for text in found if "orders" in text or "pull" in text)


def test_the_client_needs_the_standard_library_only() -> None:
    """In a bare interpreter, where neither Django nor EMS can be imported."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print([*sys.modules])"
    bare = [sys.executable, "-I", "-S", "-c", code, module.__file__]
    loaded = subprocess.run(bare, capture_output=True, text=True, check=True).stdout
    assert "'http.client'" in loaded
    assert "django" not in loaded
    assert "streams" not in loaded


@pytest.mark.parametrize("language", ["javascript", "go"])
def test_a_consumer_in_another_language_has_sixty_lines_at_most(language: str) -> None:
    assert len(shown(language).splitlines()) <= 60


@pytest.mark.parametrize(
    "language", ["javascript", pytest.param("go", marks=pytest.mark.exhaustive)]
)
def test_a_consumer_in_another_language_handles_all(
    language: str, web: StartWeb, tmp_path: Path
) -> None:
    """Go is not on every machine that runs the tests."""
    program = {"javascript": "node", "go": "go"}[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    path = tmp_path / {"javascript": "consumer.mjs", "go": "consumer.go"}[language]
    path.write_text(shown(language))
    command = [program, str(path)] if language == "javascript" else [program, "run", str(path)]
    server = web()
    server.client().make_group("orders", "mail")
    send_many([Outgoing("orders", {"number": number}) for number in range(30)])
    arguments = [f"http://127.0.0.1:{server.port}/ems", server.token, "orders", "mail"]
    child = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert child.stdout is not None
        lines = [child.stdout.readline().split()[0] for _ in range(30)]
        assert [int(line) for line in lines] == [*range(30)]
        wait_for(lambda: not Delivery.objects.open().exists())
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def test_the_client_of_python_reports_each_outcome(web: StartWeb) -> None:
    client = web().client()
    client.make_group("orders", "mail", start="earliest", max_retries=3)
    for body in ("done", "retry", "reject", "broken", b"\x00\xff"):
        client.send("orders", body)
    seen: list[Any] = []
    done = threading.Event()

    def handle(message: module.Message) -> None:
        seen.append(message.body)
        if len(seen) == 5:
            done.set()
        if message.body == "retry":
            raise Retry("busy", delay=60)
        if message.body == "reject":
            raise Reject("no such order")
        if message.body == "broken":
            raise ZeroDivisionError("out of order")

    client.consume("orders", "mail", handle, client="one", hold=2, stopped=done.is_set)
    assert seen == ["done", "retry", "reject", "broken", b"\x00\xff"]
    errors = sorted(RetryMessage.objects.values_list("last_error", flat=True))
    assert errors == ["HttpFailure: ZeroDivisionError: out of order", "Retry: busy"]
    assert DeadMessage.objects.get().error == "no such order"
    assert not Delivery.objects.open().exists()


@pytest.mark.exhaustive
def test_the_client_gives_back_what_it_has_not_begun(web: StartWeb) -> None:
    client = web().client()
    client.make_group("orders", "mail", start="earliest")
    for number in range(3):
        send("orders", number)
    done = threading.Event()
    client.consume(
        *("orders", "mail", lambda message: done.set()),
        client="one",
        hold=2,
        stopped=done.is_set,
    )
    waiting = Delivery.objects.given_back().get()
    assert (waiting.first_offset, waiting.last_offset, waiting.attempt) == (1, 2, 1)


def test_the_client_says_why_it_is_refused(web: StartWeb) -> None:
    client = web().client()
    with pytest.raises(ApiError, match="unknown_group"):
        client.pull("orders", "mail", client="one")
    stranger = Client(f"http://{client._host}/ems", "ems_aaaaaaaa_" + "A" * 43)
    with pytest.raises(ApiError) as refused:
        stranger.pull("orders", "mail", client="one")
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    stranger.close()
    with pytest.raises(ValueError, match="not a URL"):
        Client("shop.example", "x")
