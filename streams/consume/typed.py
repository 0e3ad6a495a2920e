"""Makes typed bodies for handlers, and refuses messages whose body is not of the type."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from streams.api import ReceivedMessage
from streams.consume.registry import autodiscover, find
from streams.errors import InvalidBody, describe
from streams.logs import event
from streams.typed.typed_body import TypedBody

logger = logging.getLogger("streams.handling")


def make_body(message: ReceivedMessage[Any], kind: TypedBody) -> None:
    """Make the body of the message a value of the type; raises InvalidBody.

    And DamagedBody, and whatever the validators of the type raise.
    """
    value = kind.decode(message.raw_body, message.body_type)
    vars(message).update(body=value, typed=True)


def sorted_out(
    messages: Sequence[ReceivedMessage[Any]], kind: TypedBody, *, ordered: bool
) -> tuple[list[ReceivedMessage[Any]], dict[ReceivedMessage[Any], Exception]]:
    """Split the messages of a batch: into those to hand over, and those that have failed, and why.

    In an ordered group what comes after a failed one waits for it, so it is neither.
    """
    fit: list[ReceivedMessage[Any]] = []
    refused: dict[ReceivedMessage[Any], Exception] = {}
    for message in messages:
        try:
            make_body(message, kind)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything
            refused[message] = error
            if ordered:
                break
        else:
            fit.append(message)
    return fit, refused


def check_body(topic: str, group: str, raw: bytes, body_type: str) -> None:
    """Check a body as the consumer of the group would; raises InvalidBody.

    Nothing is checked where the code of the consumer is not installed.
    """
    try:
        autodiscover()
    except ImportError as error:
        logger.warning(
            "The consumers cannot be imported here, so the body for %s/%s is not checked: %s",
            *(topic, group, error),
            extra=event("body.unchecked", topic=topic, group=group),
        )
    registration = find(topic, group)
    if registration and registration.body:
        try:
            registration.body.decode(raw, body_type)
        except InvalidBody:
            raise
        except Exception as error:  # a validator may raise anything
            raise InvalidBody(f"$: {describe(error)}") from error
