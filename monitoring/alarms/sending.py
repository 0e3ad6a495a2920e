"""Sends one notification by its channel, within a time limit."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Thread

from django.core.mail import send_mail

from monitoring.alarms.address import page_of
from monitoring.alarms.payloads import post, refusal
from monitoring.alarms.texts import lines, title
from monitoring.models import AlarmChannel, AlarmNotification, ChannelKind
from streams.outgoing import SendingFailed, send

# Seconds that one attempt may take.
SECONDS = 5.0


def send_one(
    notification: AlarmNotification, channel: AlarmChannel, seconds: float = SECONDS
) -> None:
    """Send it, in at most ``seconds``; raises SendingFailed.

    A thread sends, since a name server or a mail server may let it wait for longer. What comes of
    it after the time is not looked at: the next attempt sends again.
    """
    outcome: SimpleQueue[Exception | None] = SimpleQueue()

    page = page_of(notification.alarm)  # read here: the thread has no database connection

    def work() -> None:
        try:
            _send(notification, channel, seconds, page)
        except Exception as error:  # noqa: BLE001 - a mail backend may raise anything
            outcome.put(error)
        else:
            outcome.put(None)

    Thread(target=work, name="ems-alarm", daemon=True).start()
    try:
        error = outcome.get(timeout=seconds)
    except Empty:
        raise SendingFailed(f"no answer within {seconds:.0f} s") from None
    if isinstance(error, SendingFailed):
        raise error
    if error is not None:
        raise SendingFailed(f"{type(error).__name__}: {error}") from error


def _send(
    notification: AlarmNotification, channel: AlarmChannel, seconds: float, page: str
) -> None:
    if channel.kind == ChannelKind.EMAIL:
        text = "\n".join([*lines(notification.alarm, page), "", f"EMS · {notification.uid}"])
        subject = " ".join(title(notification.event, notification.alarm).split())
        if not send_mail(subject, text, None, channel.addresses):
            raise SendingFailed("the mail backend has sent nothing")
        return
    request = post(channel, notification, time.time(), page)
    answer = send(request, allow_private=channel.allow_private, seconds=seconds)
    if reason := refusal(channel.kind, answer):
        raise SendingFailed(reason)
