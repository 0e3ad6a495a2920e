"""Makes the bodies of notifications: JSON with a signature, and what chats expect."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from monitoring.alarms.texts import lines, title
from monitoring.models import Alarm, AlarmChannel, AlarmNotification, ChannelKind
from streams.outgoing import SIGNATURE, OutgoingRequest, signature
from streams.sharding import is_sharded


def post(
    channel: AlarmChannel, notification: AlarmNotification, now: float, page: str
) -> OutgoingRequest:
    """Return the request that tells the channel, with the address of the alarm's ``page``.

    ``now`` is in seconds since 1970.
    """
    alarm = notification.alarm
    said = [title(notification.event, alarm), *lines(alarm, page)]
    if channel.kind == ChannelKind.WEBHOOK:
        made = _webhook(channel, notification, said, int(now), page)
    else:
        made = _CHATS[ChannelKind(channel.kind)](channel, said, int(now))
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "ems-alarms"}
    return OutgoingRequest(made.url, made.body, headers | made.headers)


def refusal(kind: str, answer: bytes) -> str:
    """Return why a chat has refused what it answered with 200; empty if it has not."""
    name = {ChannelKind.DINGTALK: "errcode", ChannelKind.FEISHU: "code"}.get(ChannelKind(kind))
    if name is None:
        return ""
    try:
        found = json.loads(answer)
        code = found.get(name, 0)
    except (ValueError, AttributeError, RecursionError):
        return "its answer is not a JSON object"
    return "" if code == 0 else f"{name} {code}: {found.get('errmsg') or found.get('msg') or ''}"


def _webhook(
    channel: AlarmChannel, notification: AlarmNotification, said: list[str], now: int, page: str
) -> OutgoingRequest:
    alarm = notification.alarm
    body = _json(
        {
            "id": notification.uid,
            "event": notification.event,
            "title": said[0],
            "text": "\n".join(said[1:]),
            "page": page or None,
            "alarm": alarm and _facts(alarm),
        }
    )
    signed = {SIGNATURE: signature(channel.secret, now, body)} if channel.secret else {}
    return OutgoingRequest(channel.url, body, signed)


def _facts(alarm: Alarm) -> dict[str, Any]:
    instants = ("since", "fired_at", "acknowledged_at", "resolved_at")
    names = ("rule", "metric", "subject", "topic", "group", "severity", "state", "value")
    more = ("threshold", "detail", "runbook", "acknowledged_by", "note")
    where = {"database": alarm._state.db} if is_sharded() else {}
    return {
        "id": alarm.pk,
        **where,
        **{name: getattr(alarm, name) for name in (*names, *more)},
        **{name: _instant(getattr(alarm, name)) for name in instants},
    }


def _instant(value: datetime | None) -> str | None:
    return value.isoformat() if value else None


def _slack(channel: AlarmChannel, said: list[str], now: int) -> OutgoingRequest:
    head, *rest = (_slack_text(line) for line in said)
    return OutgoingRequest(channel.url, _json({"text": "\n".join([f"*{head}*", *rest])}))


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(channel: AlarmChannel, said: list[str], now: int) -> OutgoingRequest:
    head, *rest = said
    blocks = [{"type": "TextBlock", "text": head, "weight": "Bolder", "wrap": True}]
    blocks += [{"type": "TextBlock", "text": line, "wrap": True} for line in rest]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attachments = [{"contentType": kind, "content": card}]
    return OutgoingRequest(channel.url, _json({"type": "message", "attachments": attachments}))


def _dingtalk(channel: AlarmChannel, said: list[str], now: int) -> OutgoingRequest:
    text = {"content": "\n".join(said)}
    url = channel.url
    if channel.secret:
        at = now * 1000
        sign = _sign(channel.secret.encode(), f"{at}\n{channel.secret}".encode())
        url += ("&" if "?" in url else "?") + urlencode({"timestamp": at, "sign": sign})
    return OutgoingRequest(url, _json({"msgtype": "text", "text": text}))


def _feishu(channel: AlarmChannel, said: list[str], now: int) -> OutgoingRequest:
    text = {"text": "\n".join(said)}
    body: dict[str, Any] = {"msg_type": "text", "content": text}
    if channel.secret:
        # The text is the key, and what it signs is empty.
        sign = _sign(f"{now}\n{channel.secret}".encode(), b"")
        body |= {"timestamp": str(now), "sign": sign}
    return OutgoingRequest(channel.url, _json(body))


def _sign(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


_CHATS: dict[ChannelKind, Callable[[AlarmChannel, list[str], int], OutgoingRequest]] = {
    ChannelKind.SLACK: _slack,
    ChannelKind.TEAMS: _teams,
    ChannelKind.DINGTALK: _dingtalk,
    ChannelKind.FEISHU: _feishu,
}
