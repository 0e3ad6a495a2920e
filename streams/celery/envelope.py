"""Turns messages of kombu into messages of EMS, and back.

What people look for has its place: the arguments are the body, as JSON where kombu has written
JSON; the name of a task is the tag, its id the key, and each header that is a text is a header. The
rest is in one header as JSON.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from kombu.utils.json import dumps, loads

from streams.api import Outgoing, ReceivedMessage
from streams.body import JSON, TEXT, AsJson
from streams.log.bodies import StoredMessage
from streams.rules.names import MAX_KEY, MAX_TAG

# The header that has what is no text, and what kombu says of the message.
REST = "kombu"

_NOT_IN_TAGS = re.compile(r"[^\w.\-:]")

Payload = dict[str, Any]


def outgoing(topic: str, payload: Payload) -> Outgoing:
    """Return what is sent to ``topic`` of a message of kombu."""
    given = payload.get("headers") or {}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    texts.pop(REST, None)
    rest = {
        "headers": {name: value for name, value in given.items() if name not in texts},
        "properties": payload["properties"],
        "content-type": payload.get("content-type"),
        "content-encoding": payload.get("content-encoding"),
    }
    task = str(given.get("task") or "")
    key = id_of(payload)
    return Outgoing(
        topic,
        _body(payload),
        key=key if isinstance(key, str) and key.strip() == key and len(key) <= MAX_KEY else None,
        tag=_NOT_IN_TAGS.sub("_", task)[-MAX_TAG:],
        headers={**texts, REST: dumps(rest)},
        deliver_at=_eta(given.get("eta")),
    )


def payload_of(message: ReceivedMessage | StoredMessage, attempt: int = 1) -> Payload:
    """Return the message of kombu that was sent."""
    texts = dict(message.headers)
    rest: Payload = loads(texts.pop(REST, "{}"))
    raw = message.raw_body
    properties = {"delivery_info": {}, **(rest.get("properties") or {})}
    properties["delivery_info"] = {
        **properties["delivery_info"],
        "redelivered": attempt > 1,
    }
    return {
        "body": raw.decode() if message.body_type in (JSON, TEXT) else raw,
        "content-type": rest.get("content-type", "application/json"),
        "content-encoding": rest.get("content-encoding", "utf-8"),
        "headers": {**texts, **(rest.get("headers") or {})},
        "properties": properties,
    }


def id_of(payload: Payload) -> Any:
    """Return the id of a task; of what is no task, the one that its reply has, if it says one."""
    headers = payload.get("headers") or {}
    return headers.get("id") or payload["properties"].get("correlation_id")


def is_task(payload: Payload) -> bool:
    """Tell whether the message is a task of Celery.

    By protocol 1 of Celery its name is not in its headers, but in its body.
    """
    if "task" in (payload.get("headers") or {}):
        return True
    properties = payload["properties"]
    if not properties.get("correlation_id") or "reply_to" not in properties:
        return False  # a reply has only the first
    body = _body(payload)
    if not isinstance(body, AsJson):
        return True  # it cannot be read here, and a task is not to be lost
    return isinstance(body.value, dict) and {"task", "id"} <= body.value.keys()


def is_too_old(message: ReceivedMessage | StoredMessage, payload: Payload) -> bool:
    """Tell whether a message has outlived its ``expiration``, in milliseconds.

    Not a task: Celery looks itself when a task expires, and says so.
    """
    expiration = payload["properties"].get("expiration")
    if expiration is None or is_task(payload):
        return False
    age = datetime.now(UTC) - message.created_at
    return bool(age > timedelta(milliseconds=float(expiration)))


def _body(payload: Payload) -> Any:
    body = payload["body"]
    if isinstance(body, str) and payload.get("content-type") == "application/json":
        try:
            return AsJson(json.loads(body, parse_constant=_refused))
        except ValueError:
            return body  # it says that it is JSON, and is not: as it is
    return body


def _refused(name: str) -> Any:
    raise ValueError(name)


def _eta(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None  # the worker says so
    return eta if eta.tzinfo else eta.replace(tzinfo=UTC)
