"""Makes a message stream of the MySQL that a Django project already has: EMS.

The names below are loaded on first use, so that ``from streams import send`` works in any module,
also before Django's apps are ready.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.api import Decision, Outgoing, PreparedMessage, ReceivedMessage, SendResult
    from streams.consume.outcome.backoff import Exponential
    from streams.consume.registry import consumer
    from streams.errors import Postpone, Reject, Retry, SendOutcomeUnknown, StreamsError
    from streams.produce.cancel import cancel
    from streams.produce.send import asend, send, send_many
    from streams.relays.relay import relay
    from streams.two_phase.handle import Prepared
    from streams.two_phase.prepare import prepare, prepared
    from streams.two_phase.registry import checkback

_HOME = {
    "Decision": "streams.api",
    "Exponential": "streams.consume.outcome.backoff",
    "Outgoing": "streams.api",
    "Postpone": "streams.errors",
    "Prepared": "streams.two_phase.handle",
    "PreparedMessage": "streams.api",
    "ReceivedMessage": "streams.api",
    "Reject": "streams.errors",
    "Retry": "streams.errors",
    "SendOutcomeUnknown": "streams.errors",
    "SendResult": "streams.api",
    "StreamsError": "streams.errors",
    "asend": "streams.produce.send",
    "cancel": "streams.produce.cancel",
    "checkback": "streams.two_phase.registry",
    "consumer": "streams.consume.registry",
    "prepare": "streams.two_phase.prepare",
    "prepared": "streams.two_phase.prepare",
    "relay": "streams.relays.relay",
    "send": "streams.produce.send",
    "send_many": "streams.produce.send",
}

__all__ = [
    "Decision",
    "Exponential",
    "Outgoing",
    "Postpone",
    "Prepared",
    "PreparedMessage",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "SendOutcomeUnknown",
    "SendResult",
    "StreamsError",
    "asend",
    "cancel",
    "checkback",
    "consumer",
    "prepare",
    "prepared",
    "relay",
    "send",
    "send_many",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from streams.release import UNKNOWN, version

        return version() or UNKNOWN
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
