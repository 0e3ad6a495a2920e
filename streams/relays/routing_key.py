"""Makes the routing key of a message by the template of a relay."""

from __future__ import annotations

from string import Formatter

from streams.api import ReceivedMessage
from streams.errors import InvalidConsumer

FIELDS = ("tag", "key", "topic")


class RoutingKey:
    """A template such as ``order.{tag}``; a message without a key has an empty one there.

    Raises InvalidConsumer.
    """

    def __init__(self, template: str) -> None:
        try:
            parts = list(Formatter().parse(template))
        except (TypeError, ValueError) as error:
            raise InvalidConsumer(f"routing_key {template!r} is no template: {error}.") from None
        for _text, field, spec, conversion in parts:
            if field is not None and (field not in FIELDS or spec or conversion):
                allowed = ", ".join(f"{{{name}}}" for name in FIELDS)
                raise InvalidConsumer(
                    f"routing_key {template!r} has {{{field}}}: it may have {allowed}."
                )
        self._template = template

    def of(self, message: ReceivedMessage) -> str:
        return self._template.format(tag=message.tag, key=message.key or "", topic=message.topic)
