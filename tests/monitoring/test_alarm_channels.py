"""Notifications reach their channels: at least once, in order, and only where they may."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from monitoring.alarms import delivering, sending
from monitoring.alarms.delivering import (
    ATTEMPTS,
    LADDER,
    delay_after,
    deliver,
    deliver_if_due,
    send_test,
)
from monitoring.alarms.payloads import post
from monitoring.models import AlarmChannel, AlarmNotification
from streams.chaos.forks import in_fork
from streams.outgoing import OutgoingRequest, SendingFailed, is_public, send, signature
from tests.faults import Guillotine
from tests.monitoring.alarming import Receiver, alarm, channel, pass_time, receiver

TITLE = "[Critical] Fired: mail on orders: Messages that a group is behind"

pytestmark = pytest.mark.django_db(transaction=True)


def notification(where: AlarmChannel, **more: Any) -> AlarmNotification:
    about = more.pop("alarm", None) or alarm()
    made = AlarmNotification.objects.create(alarm=about, channel=where, event="fired", **more)
    made.refresh_from_db()
    return made


def test_a_webhook_that_is_down_at_first_gets_it_once() -> None:
    with receiver() as server:
        url = server.url
        server.stop()
        row = notification(channel(url, secret="s3cret"))
        assert deliver("default") == 0
        row.refresh_from_db()
        assert (row.state, row.attempts) == ("waiting", 1)
        assert "Connection refused" in row.error
        assert AlarmChannel.objects.get().is_down
        assert deliver("default") == 0  # not due yet
        up = Receiver.__new__(Receiver)
        _restart(up, server)
        try:
            pass_time(LADDER[0] + 1)
            assert deliver("default") == 1
            pass_time(100_000)
            assert deliver("default") == 0
        finally:
            up.stop()
            server.start()
    (got,) = up.got
    headers, body = got
    sent = json.loads(body)
    assert sent["id"] == row.uid
    assert sent["event"] == "fired"
    assert sent["alarm"]["group"] == "mail"
    at, given = (part.partition("=")[2] for part in headers["Ems-Signature"].split(","))
    expected = hmac.new(b"s3cret", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(given, expected)
    assert abs(int(at) - time.time()) < 60
    assert not AlarmChannel.objects.get().is_down


def _restart(up: Receiver, down: Receiver) -> None:
    from http.server import HTTPServer

    up.got, up._handler, up.port = down.got, down._handler, down.port
    up._server = HTTPServer(("127.0.0.1", down.port), down._handler)
    down._server = HTTPServer(("127.0.0.1", 0), down._handler)  # to be stopped at the end
    up.start()


def test_the_ladder_of_attempts_has_its_delays_and_an_end() -> None:
    delays = [delay_after(attempt) for attempt in range(1, ATTEMPTS + 1)]
    assert delays[:4] == [timedelta(seconds=n) for n in (10, 30, 60, 120)]
    assert delays[-1] is None
    assert None not in delays[:-1]
    assert sum((d for d in delays if d), timedelta(0)) >= timedelta(days=3)


def test_each_attempt_waits_for_its_step_of_the_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "ATTEMPTS", 4)
    row = notification(channel("http://127.0.0.1:1/"))
    for attempt, seconds in enumerate(LADDER[:3], 1):
        deliver("default")
        row.refresh_from_db()
        assert row.attempts == attempt
        left = (row.due_at - timezone.now()).total_seconds()
        assert seconds - 3 < left <= seconds
        pass_time(seconds - 4)
        deliver("default")
        assert AlarmNotification.objects.get().attempts == attempt
        pass_time(5)
    deliver("default")
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("given up", 4)
    pass_time(100_000)
    assert deliver("default") == 0


def test_a_channel_that_is_down_holds_up_no_other_and_loses_no_order() -> None:
    with receiver() as server:
        down = channel("http://127.0.0.1:1/", name="down")
        up = channel(server.url, name="up")
        one, two = alarm(), alarm(subject="other")
        for about in (one, two):
            for where in (down, up):
                notification(where, alarm=about)
        late = AlarmNotification.objects.create(alarm=one, channel=down, event="resolved")
        assert deliver("default") == 2
        tried = AlarmNotification.objects.filter(channel=down, attempts__gt=0)
        assert tried.count() == 1  # one failure is enough to know
        assert not AlarmNotification.objects.due().exists()
        AlarmChannel.objects.filter(pk=down.pk).update(url=server.url)
        pass_time(61)
        assert deliver("default") == 2
        late.refresh_from_db()
        assert late.state == "waiting"
        assert deliver("default") == 1  # after what it ends
    told = [body["event"] for body in server.bodies]
    assert told[-1] == "resolved"


def _deliver_until_killed(point: int) -> None:
    Guillotine(point).install()
    deliver("default")


def test_who_dies_between_sending_and_noting_sends_again_with_the_same_id() -> None:
    with receiver() as server:
        where = channel(server.url)
        for point in count(1):
            AlarmNotification.objects.all().delete()
            server.got.clear()
            row = notification(where, alarm=alarm(subject=f"{point}"))
            status = in_fork(partial(_deliver_until_killed, point))
            assert status in (0, -9)
            if AlarmNotification.objects.filter(attempts=1).exists():
                assert deliver("default") == 0  # the other process may be sending at this moment
                pass_time(61)
            deliver("default")
            row.refresh_from_db()
            assert row.state == "sent", point
            ids = {body["id"] for body in server.bodies}
            assert ids == {row.uid}
            if status == 0:
                break
        assert len(server.got) == 1
    assert point > 4


def test_two_processes_send_it_once(in_thread: Callable[..., Any]) -> None:
    with receiver() as server:
        where = channel(server.url)
        for number in range(5):
            notification(where, alarm=alarm(subject=f"{number}"))
        for running in [in_thread(deliver, "default") for _ in range(4)]:
            running.result(60)
        assert len(server.got) == len({body["id"] for body in server.bodies}) == 5


def test_an_attempt_that_took_too_long_does_not_note_over_the_next_one() -> None:
    row = notification(channel("http://127.0.0.1:1/"))
    late = AlarmNotification.objects.get()
    assert late.take()
    assert not row.take()  # taken by another process
    row.refresh_from_db()
    assert row.take()
    assert not late.note_failed("late", None)
    assert row.note_sent()
    assert not late.note_sent()


def test_a_channel_that_never_answers_does_not_hold_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        row = notification(channel(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        started = time.monotonic()
        deliver("default", seconds=1.2)
        assert time.monotonic() - started < 4
    row.refresh_from_db()
    assert row.state == "waiting"
    assert row.error


def _drip(server: socket.socket, first: bytes, seconds: float) -> None:
    with server.accept()[0] as connection, suppress(OSError):
        connection.sendall(first)
        for _part in range(int(seconds / 0.05)):
            connection.sendall(b"H")
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("scheme", "first"),
    # The second one is the head of a long record of a handshake.
    [("http", b"HTTP/1.1 200 "), ("https", b"\x16\x03\x03\x40\x00")],
)
def test_bytes_that_drip_hold_no_thread_for_longer_than_its_seconds(
    scheme: str, first: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=_drip, args=(server, first, 6))
        dripping.start()
        started = time.monotonic()
        with pytest.raises(SendingFailed):
            url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/"
            send(OutgoingRequest(url, b""), allow_private=True, seconds=0.5)
        assert time.monotonic() - started < 4
        dripping.join(10)


def test_a_notification_that_waited_longer_than_the_ladder_is_given_up() -> None:
    """Such as one of a channel that was off for weeks."""
    with receiver() as server:
        where = channel(server.url, enabled=False)
        old = notification(where, alarm=alarm(subject="old"))
        pass_time(delivering.OLDEST.total_seconds() + 1)
        new = notification(where, alarm=alarm(subject="new"))
        deliver_if_due("default")
        AlarmChannel.objects.update(enabled=True)
        deliver_if_due("default")
        deliver_if_due("default")
    assert [body["alarm"]["subject"] for body in server.bodies] == ["new"]
    old.refresh_from_db()
    new.refresh_from_db()
    assert (old.state, new.state) == ("given up", "sent")


def test_a_run_ends_after_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        where = channel("http://127.0.0.1:1/", name=f"c{number}")
        notification(where, alarm=alarm(subject=f"{number}"))
    clock = iter([0.0, 0.0, 4.5, 9.0])
    monkeypatch.setattr(delivering, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    deliver("default")
    assert AlarmNotification.objects.filter(attempts=1).count() == 1


def test_the_step_runs_each_5_seconds() -> None:
    with receiver() as server:
        where = channel(server.url)
        for expected, seconds in ((1, 0), (1, 4), (2, 2)):
            pass_time(seconds)
            notification(where, alarm=alarm(subject=f"{expected}{seconds}"))
            deliver_if_due("default")
            assert len(server.got) >= expected
        assert len(server.got) == 3


def test_a_mail_is_sent_to_the_recipients() -> None:
    where = channel("", kind="email", recipients="a@example.com,\nb@example.com")
    row = notification(where)
    assert deliver("default") == 1
    (sent,) = mail.outbox
    assert sent.to == ["a@example.com", "b@example.com"]
    assert sent.subject == TITLE
    assert row.uid in sent.body


def test_a_test_is_sent_at_once_and_never_again() -> None:
    where = channel("http://127.0.0.1:1/")
    assert "refused" in send_test(where, "default")
    assert AlarmNotification.objects.get().state == "given up"
    with receiver() as server:
        AlarmChannel.objects.update(url=server.url)
        assert send_test(AlarmChannel.objects.get(), "default") == ""
    assert server.bodies[0]["event"] == "test"
    assert server.bodies[0]["alarm"] is None


# -- where requests may go --


def names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let each look-up of a name give the next answer; return the names looked up."""
    left, asked = list(answers), []

    def getaddrinfo(host: str, port: int, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in found]

    monkeypatch.setattr("streams.outgoing.socket.getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 - refused
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "64:ff9b:1::5db8:d822",
        "::7f00:1",
        "::5db8:d822",
        "::ffff:0:7f00:1",
        "fec0::1",
    ],
)
def test_private_addresses_are_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(SendingFailed, match="private address"):
        send(OutgoingRequest(f"http://{host}:9/", b""), allow_private=False, seconds=1)


def test_public_addresses_are_allowed() -> None:
    import ipaddress

    for text in ("93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"):
        assert is_public(ipaddress.ip_address(text))


def test_one_private_address_of_a_name_is_enough_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names(monkeypatch, ["93.184.216.34", "127.0.0.1"])
    with pytest.raises(SendingFailed, match=r"127\.0\.0\.1 is a private address"):
        send(OutgoingRequest("http://hooks.example/", b""), allow_private=False, seconds=1)


def test_a_name_that_changes_its_address_after_the_check_leads_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the address that was checked is the one that is connected to."""
    connected: list[Any] = []

    def create_connection(address: tuple[str, int], timeout: float) -> Any:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("streams.outgoing.socket.create_connection", create_connection)
    asked = names(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    with pytest.raises(SendingFailed):
        send(OutgoingRequest("http://rebinding.example:81/", b""), allow_private=False, seconds=1)
    assert asked == ["rebinding.example"]
    assert connected == [("93.184.216.34", 81)]


def test_a_redirect_is_not_followed() -> None:
    with (
        receiver() as inside,
        receiver(302, headers={"Location": inside.url}) as server,
        pytest.raises(SendingFailed, match="redirects are not followed"),
    ):
        send(OutgoingRequest(server.url, b""), allow_private=True, seconds=2)
    assert inside.got == []


def test_an_answer_is_read_up_to_64_kilobytes() -> None:
    with receiver(answer=b"x" * 1_000_000) as server:
        assert (
            len(send(OutgoingRequest(server.url, b""), allow_private=True, seconds=5)) == 64 * 1024
        )


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_any_other_status_is_a_failure(status: int) -> None:
    with receiver(status) as server, pytest.raises(SendingFailed, match=f"HTTP {status}"):
        send(OutgoingRequest(server.url, b""), allow_private=True, seconds=2)


def test_no_error_has_the_url_of_a_channel() -> None:
    where = channel("http://127.0.0.1:1/services/T0/SECRET")
    notification(where)
    deliver("default")
    row = AlarmNotification.objects.get()
    assert row.error
    assert "SECRET" not in row.error
    assert "SECRET" not in AlarmChannel.objects.get().target


# -- what chats expect --


def sent_to(kind: str, runbook: str = "", **more: Any) -> tuple[str, Any]:
    where = AlarmChannel(kind=kind, url="https://chat.example/hook?a=1", **more)
    about = alarm(detail="<b> & more", runbook=runbook)
    row = AlarmNotification(alarm=about, channel=where, event="fired")
    made = post(where, row, 1_700_000_000, "https://ops.example/alarms")
    return made.url, json.loads(made.body)


def test_slack_gets_a_text_with_its_own_escapes() -> None:
    _url, body = sent_to("slack")
    assert body["text"].startswith(f"*{TITLE}*\n")
    assert "&lt;b&gt; &amp; more" in body["text"]


def test_teams_gets_an_adaptive_card() -> None:
    _url, body = sent_to("teams")
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["content"]["body"][0]["text"] == TITLE


def test_dingtalk_is_signed_in_the_url() -> None:
    url, body = sent_to("dingtalk", secret="SEC1")
    assert body["msgtype"] == "text"
    text = b"1700000000000\nSEC1"
    sign = base64.b64encode(hmac.new(b"SEC1", text, hashlib.sha256).digest()).decode()
    from urllib.parse import parse_qs, urlsplit

    query = parse_qs(urlsplit(url).query)
    assert query == {"a": ["1"], "timestamp": ["1700000000000"], "sign": [sign]}


def test_feishu_is_signed_in_the_body() -> None:
    _url, body = sent_to("feishu", secret="SEC1")
    key = b"1700000000\nSEC1"
    sign = base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()
    assert body["sign"] == sign
    assert body["timestamp"] == "1700000000"
    assert body["content"]["text"].startswith("[Critical]")


@pytest.mark.parametrize("kind", ["slack", "teams", "dingtalk", "feishu"])
def test_every_chat_gets_the_page_of_the_alarm_and_the_runbook(kind: str) -> None:
    _url, body = sent_to(kind, runbook="https://wiki.example/lag")
    told = json.dumps(body)
    assert "Page: https://ops.example/alarms" in told
    assert "Runbook: https://wiki.example/lag" in told


@pytest.mark.parametrize(
    ("kind", "answer", "refused"),
    [
        ("dingtalk", {"errcode": 0, "errmsg": "ok"}, ""),
        ("dingtalk", {"errcode": 310000, "errmsg": "sign not match"}, "sign not match"),
        ("feishu", {"code": 0, "msg": "success"}, ""),
        ("feishu", {"code": 19021, "msg": "sign match fail"}, "sign match fail"),
    ],
)
def test_a_chat_that_refuses_with_200_is_a_failure(
    kind: str, answer: dict[str, Any], refused: str
) -> None:
    with receiver(answer=json.dumps(answer).encode()) as server:
        where = channel(server.url, kind=kind)
        assert refused in send_test(where, "default")
    assert AlarmNotification.objects.get().state == ("given up" if refused else "sent")


def test_the_signature_is_that_of_the_documentation() -> None:
    # echo -n '1700000000.{}' | openssl dgst -sha256 -hmac secret
    digest = hmac.new(b"secret", b"1700000000.{}", hashlib.sha256).hexdigest()
    assert signature("secret", 1_700_000_000, b"{}") == f"t=1700000000,v1={digest}"


def test_a_mail_server_that_hangs_does_not_hold_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "send_mail", lambda *a: time.sleep(5))
    where = channel("", kind="email", recipients="a@example.com")
    with pytest.raises(SendingFailed, match="no answer"):
        sending.send_one(notification(where), where, seconds=0.1)
