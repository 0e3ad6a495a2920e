"""Defines the errors of the rules; streams/errors.py has them, too, with all others of EMS."""

from __future__ import annotations


class StreamsError(Exception):
    """EMS could not do this."""

    # The argument that is wrong, if there are several.
    field = ""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((self.__doc__ or "").split()))


class InvalidName(StreamsError, ValueError):
    """A name is empty, too long, or has characters that it may not have."""


class InvalidMessage(StreamsError, ValueError):
    """A part of the message has the wrong type or value."""


class NotSerializable(InvalidMessage):
    """The body cannot be written as JSON."""


class MessageTooLarge(InvalidMessage):
    """Body and headers are larger than msgMaxSizeInBytes."""


class DamagedBody(StreamsError, ValueError):
    """The stored body is damaged."""
