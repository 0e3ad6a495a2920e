"""Hands messages on to another system over HTTP, as the handler of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

from streams import body as bodies
from streams.api import ReceivedMessage
from streams.outgoing import SIGNATURE, OutgoingRequest, send, signature


def webhook(
    url: str, secret: str = "", *, allow_private: bool = False, seconds: float = 5.0
) -> Callable[[ReceivedMessage], None]:
    """Return a handler that sends each message to ``url`` by POST.

    The group's retries and dead letters are its tries: any answer but 2xx within ``seconds``
    fails. ``Ems-Id`` is the same in each attempt, so a receiver can tell a repetition. With a
    ``secret`` the request is signed, with the time of this process. Addresses of private networks
    are refused unless ``allow_private``.
    """

    def forward(message: ReceivedMessage) -> None:
        headers = {
            "Content-Type": _content_type(message.body_type),
            "User-Agent": "ems-webhook",
            # A header is Latin-1; the name of a topic may have any letters.
            "Ems-Id": f"{quote(message.topic)}/{message.partition}@{message.offset}",
        }
        if message.key is not None:
            headers["Ems-Key"] = message.key.encode("unicode_escape").decode()
        if secret:
            headers[SIGNATURE] = signature(secret, int(time.time()), message.raw_body)
        request = OutgoingRequest(url, message.raw_body, headers)
        send(request, allow_private=allow_private, seconds=seconds)

    return forward


def _content_type(body_type: str) -> str:
    charset = "; charset=utf-8" if body_type == bodies.TEXT else ""
    return bodies.CONTENT_TYPES[body_type] + charset
