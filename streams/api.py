"""Defines what producers pass and what handlers receive."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic
from uuid import UUID

from streams import body as bodies

if TYPE_CHECKING:  # type checkers bring it; Python has defaults of type variables from 3.13 on
    from typing_extensions import TypeVar

    Body_co = TypeVar("Body_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Body_co = TypeVar("Body_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message for :func:`streams.send_many`; its fields are arguments of ``send()``."""

    topic: str
    body: Any = None
    key: str | int | UUID | None = None
    tag: str = ""
    headers: Mapping[str, str] | None = None
    delay: timedelta | float | None = None
    deliver_at: datetime | None = None
    partition: int | None = None
    dedup_key: str | int | UUID | None = None
    dedup_window: timedelta | float | None = None


@dataclass(frozen=True, slots=True)
class SendResult:
    """What ``send()`` returns. The message has no offset yet: it gets one after the commit.

    If ``duplicate`` is true, nothing was sent, and the rest describes the message that was first.
    """

    message_id: int
    topic: str
    partition: int
    duplicate: bool = False


# The fields of a received message that all messages of one claim have in common.
OF_CLAIM = frozenset({"topic", "group", "partition", "attempt", "epoch"})


@dataclass(frozen=True)
class ReceivedMessage(Generic[Body_co]):
    """A message as a handler sees it; ``ReceivedMessage[OrderPlaced]`` has a body of this type.

    ``attempt`` counts from 1. ``offset`` is its place in the partition and, with ``topic`` and
    ``partition``, its identity: use the three as the key when a handler must do a thing once.
    ``epoch`` is how often the log had been rewound when the message got its offset.
    """

    message_id: int
    topic: str
    group: str
    partition: int
    offset: int
    attempt: int
    key: str | None
    tag: str
    headers: Mapping[str, str]
    size: int
    producer: str
    created_at: datetime
    sequenced_at: datetime | None
    body_type: str
    raw_body: bytes = field(repr=False)
    epoch: int = field(default_factory=int)  # a plain default would hide __getattr__()

    @cached_property
    def body(self) -> Body_co:
        """Return the value that was sent, or what the type of the consumer makes of it."""
        return bodies.decode(self.raw_body, self.body_type)  # type: ignore[no-any-return]

    if not TYPE_CHECKING:  # or a type checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Make a field of a message that EMS has read when it is asked for, and keep it.

            A handler looks at a few of them. Decoded headers also take more memory.
            """
            made_of = self.__dict__.get("made_of")
            if made_of is None or name not in self.__dataclass_fields__:
                raise AttributeError(name, name=name, obj=self)
            row, claim = made_of
            value = self.__dict__[name] = getattr(claim if name in OF_CLAIM else row, name)
            return value

    def __getstate__(self) -> dict[str, Any]:
        """Return all fields: a copy, or a message in another process, has no row.

        And the body, if a type has made it: see streams.consume.typed.
        """
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"body": self.body, "typed": True} if "typed" in vars(self) else state

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))


class Decision(enum.Enum):
    """What became of the work for which a message was prepared."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PreparedMessage:
    """What a check-back is asked about. ``checks`` is the number of this check, from 1."""

    biz: str
    biz_key: str
    topic: str
    checks: int
    context: Any
    created_at: datetime
    body_type: str
    raw_body: bytes = field(repr=False)

    @cached_property
    def body(self) -> Any:
        """Return the value that was prepared."""
        return bodies.decode(self.raw_body, self.body_type)
