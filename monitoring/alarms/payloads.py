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
from streams.outgoing import SIGNATURE, Request, signature
from streams.sharding import is_sharded


def post(channel: AlarmChannel, notification: AlarmNotification, now: float) -> Request:
    """Return the request that tells the channel; ``now`` is in seconds since 1970."""
    made = _MAKERS[ChannelKind(channel.kind)](channel, notification, int(now))
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "ems-alarms"}
    return Request(made.url, made.body, headers | made.headers)


def refusal(kind: str, answer: bytes) -> str:
    """Return why a chat has refused what it answered with 200; empty if it has not."""
    name = {ChannelKind.DINGTALK: "errcode", ChannelKind.FEISHU: "code"}.get(ChannelKind(kind))
    if name is None:
        return ""
    try:
        found = json.loads(answer)
        code = found.get(name, 0)
    except (ValueError, AttributeError, RecursionError):
        return "its answer is no JSON object"
    return "" if code == 0 else f"{name} {code}: {found.get('errmsg') or found.get('msg') or ''}"


def _webhook(channel: AlarmChannel, notification: AlarmNotification, now: int) -> Request:
    alarm = notification.alarm
    body = _json(
        {
            "id": notification.uid,
            "event": notification.event,
            "title": title(notification.event, alarm),
            "text": "\n".join(lines(alarm)),
            "alarm": alarm and _facts(alarm),
        }
    )
    signed = {SIGNATURE: signature(channel.secret, now, body)} if channel.secret else {}
    return Request(channel.url, body, signed)


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


def _slack(channel: AlarmChannel, notification: AlarmNotification, now: int) -> Request:
    head, *rest = (_slack_text(line) for line in _all_lines(notification))
    return Request(channel.url, _json({"text": "\n".join([f"*{head}*", *rest])}))


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(channel: AlarmChannel, notification: AlarmNotification, now: int) -> Request:
    head, *rest = _all_lines(notification)
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
    return Request(channel.url, _json({"type": "message", "attachments": attachments}))


def _dingtalk(channel: AlarmChannel, notification: AlarmNotification, now: int) -> Request:
    text = {"content": "\n".join(_all_lines(notification))}
    url = channel.url
    if channel.secret:
        at = now * 1000
        sign = _sign(channel.secret.encode(), f"{at}\n{channel.secret}".encode())
        url += ("&" if "?" in url else "?") + urlencode({"timestamp": at, "sign": sign})
    return Request(url, _json({"msgtype": "text", "text": text}))


def _feishu(channel: AlarmChannel, notification: AlarmNotification, now: int) -> Request:
    text = {"text": "\n".join(_all_lines(notification))}
    body: dict[str, Any] = {"msg_type": "text", "content": text}
    if channel.secret:
        # The text is the key, and what it signs is empty.
        sign = _sign(f"{now}\n{channel.secret}".encode(), b"")
        body |= {"timestamp": str(now), "sign": sign}
    return Request(channel.url, _json(body))


def _sign(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def _all_lines(notification: AlarmNotification) -> list[str]:
    return [title(notification.event, notification.alarm), *lines(notification.alarm)]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


_MAKERS: dict[ChannelKind, Callable[[AlarmChannel, AlarmNotification, int], Request]] = {
    ChannelKind.WEBHOOK: _webhook,
    ChannelKind.SLACK: _slack,
    ChannelKind.TEAMS: _teams,
    ChannelKind.DINGTALK: _dingtalk,
    ChannelKind.FEISHU: _feishu,
}
