"""Metrics are shown to who has the token or the permission, and on a port of this host."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import path

from streams import consumer, metrics, send
from streams.errors import ConfigurationError
from streams.metrics.address import address
from tests.metrics.scraped import samples, value
from tests.processes import Spawn

urlpatterns = [path("ems/metrics", metrics.view)]

TOKEN = {"METRICS_TOKEN": "s3cret-token"}
CONSUMER = """
from streams import consumer

@consumer("orders", group="mail", start="earliest")
def mail(message):
    print("handled", message.body, flush=True)
"""


@pytest.fixture
def client(settings: Any) -> Client:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    return Client()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.django_db(transaction=True)
def test_the_token_opens_the_view(client: Client, ems_settings: Any) -> None:
    ems_settings(**TOKEN)
    send("orders", 1)
    answer = client.get("/ems/metrics", headers=bearer("s3cret-token"))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    send("orders", 2)  # the first scrape has begun to count
    answer = client.get("/ems/metrics", headers=bearer("s3cret-token"))
    found = samples(answer.content.decode())
    assert value(found, "ems_up") == 1
    assert value(found, "ems_sent_messages_total", topic="orders", outcome="sent") is not None
    text = {**bearer("s3cret-token"), "Accept": "application/openmetrics-text;version=1.0.0"}
    answer = client.get("/ems/metrics", headers=text)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.content.endswith(b"# EOF\n")
    assert answer.content.count(b"# EOF") == 1


@pytest.mark.django_db
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), {"Authorization": "Bearer"}])
def test_nobody_else_learns_that_it_is_there(
    client: Client, ems_settings: Any, headers: dict[str, str]
) -> None:
    assert client.get("/ems/metrics", headers=headers).status_code == 404  # no token is set
    ems_settings(**TOKEN)
    assert client.get("/ems/metrics", headers=headers).status_code == 404
    client.force_login(User.objects.create_user("staff", is_staff=True))
    assert client.get("/ems/metrics").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_user_with_the_permission_sees_them(client: Client) -> None:
    user = User.objects.create_user("operator")
    user.user_permissions.add(Permission.objects.get(codename="view_metrics"))
    client.force_login(user)
    assert client.get("/ems/metrics").status_code == 200
    assert client.post("/ems/metrics").status_code == 405


@pytest.mark.parametrize("token", ["", " ", 7, b"token"])
def test_a_token_is_a_text(ems_settings: Any, token: Any) -> None:
    from streams.conf import Settings

    with pytest.raises(ConfigurationError, match="METRICS_TOKEN"):
        Settings(METRICS_TOKEN=token)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_without_a_host_only_this_one_connects(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


def scraped(line: str) -> Any:
    (url,) = re.findall(r"http://[\w.]+:\d+/metrics", line)
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - our own child
        return samples(answer.read().decode())


def test_a_consumer_shows_what_it_does(spawn: Spawn, tmp_path: Path) -> None:
    code = f"{CONSUMER}\nfrom django.core.management import call_command\n"
    child = spawn(f"{code}call_command('ems_consume', '--metrics', '0')")
    line = child.expect("Metrics: http://127.0.0.1:")
    send("orders", 7)
    child.expect("handled 7")
    place = {"topic": "orders", "group": "mail"}
    found = scraped(line)
    assert value(found, "ems_handler_seconds_count", **place) is not None
    assert value(found, "ems_workers", **place) == 5
    assert value(found, "ems_workers_busy", **place) is not None
    ((info, one),) = found["ems_consumer_info"]
    assert one == 1
    assert f"@{child.pid}@" in info["client_id"]
    assert "ems_up" not in found  # what the tables say has one target
    child.terminate()
    child.succeed()


def test_the_command_shows_what_the_tables_say(spawn: Spawn) -> None:
    send("orders", 7)
    child = spawn.command("ems_metrics", "--port", "0")
    found = scraped(child.expect("http://127.0.0.1:"))
    assert value(found, "ems_inbox_messages", topic="orders", database="default") == 1
    assert "ems_sent_messages_total" not in found
    child.send_signal(signal.SIGTERM)
    child.succeed()


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_without_the_extra_the_commands_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    consumer("orders", group="mail")(print)
    with pytest.raises(CommandError, match=r"django-ems\[metrics\]"):
        call_command("ems_consume", "--drain", "--metrics", "0")
    with pytest.raises(CommandError, match=r"django-ems\[metrics\]"):
        call_command("ems_metrics", "--port", "0")
    with pytest.raises(ConfigurationError, match=r"django-ems\[metrics\]"):
        metrics.EmsCollector  # noqa: B018


def test_a_port_in_use_is_told_in_a_line(spawn: Spawn) -> None:
    line = spawn.command("ems_metrics", "--port", "0").expect("http://127.0.0.1:")
    (port,) = re.findall(r":(\d+)/", line)
    child = spawn.command("ems_metrics", "--port", port)
    assert child.wait() == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in child.text()


@pytest.mark.exhaustive
def test_processes_of_a_web_server_are_counted_together(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ems_settings: Any
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    ems_settings(**TOKEN)
    sending = "from streams import send; send('orders', 1)"
    spawn(sending).succeed()
    spawn(sending).succeed()
    view = """
from django.test import RequestFactory
from streams.metrics import view
headers = {"Authorization": "Bearer s3cret-token"}
print(view(RequestFactory().get("/", headers=headers)).content.decode())
"""
    found = samples(spawn(view).succeed())
    assert value(found, "ems_sent_messages_total", topic="orders", outcome="sent") == 2
    assert value(found, "ems_inbox_messages", topic="orders") == 2
    assert os.listdir(tmp_path)  # noqa: PTH208


@pytest.mark.django_db
def test_a_check_warns_of_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned() -> list[str]:
        found = run_checks(tags=["database"], databases=["default"])
        return [message.msg for message in found if message.id == "ems.W021"]

    send("orders", 1)
    assert not warned()
    monkeypatch.setattr("streams.checks.MANY_SERIES", 15)
    send("goods", 1)
    assert warned()
