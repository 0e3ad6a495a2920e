"""Takes calls from a topic: a message there prepares, commits or rolls back another one."""

from __future__ import annotations

import json
from typing import Any

from django.db import connections

from streams.api import Outgoing, ReceivedMessage
from streams.conf import settings
from streams.errors import (
    ConfigurationError,
    InvalidMessage,
    NotMigrated,
    Reject,
    StreamsError,
    TopicDenied,
    UnknownChecker,
    UnknownTopic,
    describe,
)
from streams.sharding import alias_of
from streams.two_phase.content import checked_content, checked_names
from streams.two_phase.decide import commit, roll_back
from streams.two_phase.lookup import alias_with
from streams.two_phase.prepare import keep, keep_joined

GROUP = "ems-two-phase"
# Headers that begin like this are for EMS; the others are those of the message.
OURS = "ems-"
ACTION, BIZ, BIZ_KEY = "ems-action", "ems-biz", "ems-biz-key"
TOPIC, KEY, TAG, CHECKER, CONTEXT = "ems-topic", "ems-key", "ems-tag", "ems-checker", "ems-context"

# What a deployment may bring, and a misspelt name may not: the first attempts wait for it, some
# minutes on the default ladder.
MAY_APPEAR = (UnknownChecker, UnknownTopic)
PATIENT_ATTEMPTS = 5
# Seconds for which a decision on another database than that of the call is tried again: the
# transaction of the call waits meanwhile, and the calls after it.
PATIENCE = 5.0


def submitted(message: ReceivedMessage) -> None:
    """Carry out the call in the headers of ``message``, in the open transaction.

    What can never succeed is rejected, so that it blocks no other call: the group is ordered. What
    passes with time is raised, and retried. Where the message to prepare is on another database
    than the call, it is written there at once: a repetition finds it. Raises ConfigurationError if
    the topic is consumed on another database than its own.
    """
    using = alias_of(settings().TWO_PHASE_TOPIC or message.topic)
    if not connections[using].in_atomic_block:
        raise ConfigurationError(f"{GROUP} decides on {using!r} only: consume it there.")
    try:
        biz, biz_key = checked_names(message.headers.get(BIZ), message.headers.get(BIZ_KEY))
        by = f"caller:{message.producer}"
        action = message.headers.get(ACTION)
        if action == "prepare":
            _prepare(message, biz, biz_key, using)
        elif action == "commit":
            on = _alias(message, biz, biz_key)
            commit(biz, biz_key, by=by, using=on, patience=PATIENCE)
        elif action == "rollback":
            on = _alias(message, biz, biz_key)
            roll_back(biz, biz_key, by=by, using=on, patience=PATIENCE)
        else:
            raise InvalidMessage(f"{ACTION} is not an action: {action!r}.")
    except (TopicDenied, NotMigrated):
        raise
    except StreamsError as error:
        if isinstance(error, MAY_APPEAR) and message.attempt <= PATIENT_ATTEMPTS:
            raise
        raise Reject(describe(error)) from error


def _alias(message: ReceivedMessage, biz: str, biz_key: str) -> str:
    """Return the alias of the message to decide about: that of its topic, if the call names it."""
    topic = message.headers.get(TOPIC)
    return alias_with(biz, biz_key, None if topic is None else alias_of(topic))


def _prepare(message: ReceivedMessage, biz: str, biz_key: str, using: str) -> None:
    headers = message.headers
    outgoing = Outgoing(
        headers.get(TOPIC),  # type: ignore[arg-type]  # checked with the rest
        message.body,
        headers.get(KEY),
        headers.get(TAG, ""),
        {name: value for name, value in headers.items() if not name.startswith(OURS)},
    )
    topic: Any = outgoing.topic
    alias = alias_of(topic)
    content = checked_content(
        outgoing,
        biz=biz,
        biz_key=biz_key,
        checker=headers.get(CHECKER),
        context=_context(headers.get(CONTEXT)),
        using=alias,
    )
    write = keep_joined if alias == using else keep
    write(content, message.producer, alias)


def _context(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"{CONTEXT} must be JSON.") from error
