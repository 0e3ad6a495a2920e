"""Makes spans of sends, handler calls and failures, for OpenTelemetry (extra ``otel``).

The names are those of OpenTelemetry's semantic conventions for messaging, 1.44. A message has its
creation context in its headers. The span of a handler links to it by default, so that a trace does
not go on for weeks through retries and replays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import connections

from streams import telemetry
from streams.conf import PARENT, settings
from streams.release import version
from streams.telemetry import COMMIT, PREPARE, RELEASE, SEND, SETTLE, End, Handler, safely

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
# The most links of a span: what an SDK keeps by default.
MOST_LINKS = 128
# Where a delivery has the span contexts of its calls that failed: {offset: span context}.
FAILED = "_ems_failed_spans"
# W3C Trace Context: the header of a request, and the longest state that everybody passes on.
TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
LONGEST_STATE = 512


def look() -> None:
    """Begin to trace if ``EMS["TRACING"]`` says so, or if a tracer provider has been set."""
    wanted = settings().TRACING
    if wanted is None and not _provider_is_set():
        return
    telemetry.look_for(None)
    if wanted is not False:
        telemetry.observe(Tracing())


@contextmanager
def continued(headers: Mapping[str, str]) -> Iterator[None]:
    """Let the spans of the block be children of the one that ``headers`` of a request name.

    Not where a span is open already: who has opened it has read the headers.
    """
    tracing = next((one for one in telemetry.active() if isinstance(one, Tracing)), None)
    token = safely(tracing.enter, headers) if tracing else None
    try:
        yield
    finally:
        if tracing and token is not None:
            safely(tracing.leave, token)


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what a message has in its headers of the trace of the request that sends it.

    Empty where spans are made: then the span of the send is in them.
    """
    if any(isinstance(one, Tracing) for one in telemetry.active()):
        return {}
    parent, state = headers.get("traceparent", ""), headers.get("tracestate", "")
    if not TRACEPARENT.fullmatch(parent):
        return {}
    known = {"traceparent": parent}
    return {**known, "tracestate": state} if 0 < len(state) <= LONGEST_STATE else known


def _provider_is_set() -> bool:
    if "opentelemetry.trace" not in sys.modules:  # whoever sets one has imported it
        return False
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

    return not isinstance(get_tracer_provider(), NoOpTracerProvider | ProxyTracerProvider)


class Tracing(telemetry.Observer):
    """The spans. Keys and headers of messages are in none of them."""

    def __init__(self) -> None:
        from opentelemetry import baggage, context, propagate, trace

        self._baggage, self._context = baggage, context
        self._propagate, self._trace = propagate, trace
        self._tracer = trace.get_tracer("streams", version(), schema_url=SCHEMA)
        self._servers: dict[str, dict[str, Any]] = {}

    def begin(self, what: str, *args: Any) -> End | None:
        if what == SEND:
            return self._send(args[0])
        if what == PREPARE:
            return self._send(args[0], PREPARE)
        if what == COMMIT:
            return self._commit(*args)
        if what == SETTLE:
            failures = args[2] if len(args) > 2 else ()
            return self._settle(args[0], "nack", [f.offset for f in failures]) if failures else None
        return self._settle(args[0], "release", ()) if what == RELEASE else None

    # -- request --

    def enter(self, headers: Mapping[str, str]) -> Any:
        """Attach the context in ``headers``; return what ``leave`` takes, None if there is none."""
        if self._trace.get_current_span().get_span_context().is_valid:
            return None
        lower = {name.lower(): value for name, value in headers.items()}
        return self._context.attach(self._propagate.extract(lower))

    def leave(self, token: Any) -> None:
        self._context.detach(token)

    # -- send --

    def _send(self, sending: Any, name: str = SEND) -> End:
        """Begin the span of a send, or of a prepare: it is the creation context of the messages."""
        using = sending.alias
        topics = {str(getattr(one, "topic", "")) for one in sending.messages}
        given = [headers for one in sending.messages if self._is_given(headers := _headers(one))]
        attributes: dict[str, Any] = {"ems.in_transaction": connections[using].in_atomic_block}
        if sending.many:
            attributes["messaging.batch.message_count"] = len(sending.messages)
        if name == PREPARE:
            attributes["messaging.operation.type"] = "create"
        kind = self._trace.SpanKind.PRODUCER
        span = self._start(name, name, topics, using, kind, attributes, links=self._links(given))
        within = self._trace.set_span_in_context(span)
        sending.messages = [self._carrying(one, within) for one in sending.messages]
        token = self._context.attach(within)

        def end(results: Any, error: BaseException | None) -> None:
            self._context.detach(token)
            if error is not None:
                _fail(span, error)
            elif name == SEND and len(results) == 1:
                span.set_attribute("messaging.message.id", str(results[0].message_id))
                partition = str(results[0].partition)
                span.set_attribute("messaging.destination.partition.id", partition)
            span.end()

        return end

    def _is_given(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the caller has given a creation context: it is left as it is."""
        fields = self._propagate.get_global_textmap().fields - {"baggage"}
        return not fields.isdisjoint(headers)

    def _carrying(self, message: Any, within: Context) -> Any:
        headers = _headers(message)
        valid = getattr(message, "headers", "") in (None, headers)
        if not valid or self._is_given(headers):
            return message  # send() says what is not valid
        carrier = dict(headers)
        self._propagate.inject(carrier, context=within)
        return replace(message, headers=carrier) if carrier else message

    def _commit(self, row: Any, using: str) -> End:
        """Begin the span of the send that a commit makes; it links to where it was prepared."""
        attributes = {
            "messaging.operation.name": COMMIT,
            "ems.in_transaction": connections[using].in_atomic_block,
        }
        links, kind = self._links([row.headers or {}]), self._trace.SpanKind.CLIENT
        span = self._start("send", "send", {row.topic}, using, kind, attributes, links)

        def end(result: Any, error: BaseException | None) -> None:
            if error is not None:
                _fail(span, error)
            elif row.message_id is not None:
                span.set_attribute("messaging.message.id", str(row.message_id))
                partition = str(row.sent_partition)
                span.set_attribute("messaging.destination.partition.id", partition)
            span.end()

        return end

    # -- handler --

    def around(self, handler: Handler, registration: Any, stretch: Any, using: str) -> Handler:
        """Return ``handler`` in a span for each call; see :class:`streams.telemetry.Observer`."""
        batch = registration.batch is not None
        common: dict[str, Any] = {
            "messaging.consumer.group.name": registration.group,
            "messaging.destination.partition.id": str(stretch.partition.number),
        }
        if client := getattr(stretch, "client_id", None):
            common["messaging.client.id"] = client
        if delivery := getattr(stretch, "pk", None):
            common["ems.delivery.id"] = delivery
        kind = self._trace.SpanKind.CONSUMER

        def begin(argument: Any) -> tuple[Any, Any]:
            messages = argument if batch else (argument,)
            attributes = {**common, **_of_messages(messages, batch)}
            within = None
            links = self._links(message.headers for message in messages[:MOST_LINKS])
            if not batch:
                within, links = self._continued(argument.headers, links)
            topics = {registration.topic}
            span = self._start("process", "process", topics, using, kind, attributes, links, within)
            return span, self._context.attach(self._trace.set_span_in_context(span, within))

        def end(span: Any, token: Any, failed: dict[int, BaseException]) -> None:
            self._context.detach(token)
            for error in {id(one): one for one in failed.values()}.values():
                _fail(span, error)
            if failed:
                known = stretch.__dict__.setdefault(FAILED, {})
                known.update(dict.fromkeys(failed, span.get_span_context()))
            span.end()

        def observed(argument: Any) -> Any:
            begun = safely(begin, argument)
            if begun is None:
                return handler(argument)
            failed: dict[int, BaseException] = {}
            try:
                returned = handler(argument)
                if batch and isinstance(returned, Mapping):
                    failed = {getattr(m, "offset", -1): one for m, one in returned.items()}
                return returned
            except BaseException as raised:
                messages = argument if batch else (argument,)
                failed = {message.offset: raised for message in messages}
                raise
            finally:
                safely(end, *begun, failed)

        return observed

    def _continued(
        self, headers: Mapping[str, str], links: list[Link]
    ) -> tuple[Context | None, list[Link]]:
        """Return the context and the links of the span for one message, with its baggage.

        With EMS["TRACE_PARENT"] = "parent" the creation context is the parent, unless there is a
        span already.
        """
        sent = self._propagate.extract(headers)
        ambient = self._trace.get_current_span().get_span_context().is_valid
        if links and settings().TRACE_PARENT == PARENT and not ambient:
            return sent, []
        within = None
        for name, value in self._baggage.get_all(sent).items():
            within = self._baggage.set_baggage(name, value, within)
        return within, links

    # -- settle --

    def _settle(self, delivery: Any, operation: str, offsets: Sequence[int]) -> End:
        spans = delivery.__dict__.get(FAILED, {})
        contexts = {spans[one].span_id: spans[one] for one in offsets if one in spans}
        group = delivery.group
        attributes = {
            "messaging.operation.name": operation,
            "messaging.consumer.group.name": group.name,
            "messaging.client.id": delivery.client_id,
            "messaging.destination.partition.id": str(delivery.partition.number),
            "ems.delivery.id": delivery.pk,
            "ems.message.attempt": delivery.attempt,
        }
        kind, links = (
            self._trace.SpanKind.CLIENT,
            [self._trace.Link(one) for one in contexts.values()],
        )
        span = self._start(
            "settle", "settle", {group.topic.name}, delivery.using, kind, attributes, links
        )

        def end(settlement: Any, error: BaseException | None) -> None:
            if error is not None:
                _fail(span, error)
            elif operation == "nack":
                dead = bool(settlement.dead)
                span.set_attribute("ems.dead", dead)
                if dead and len(settlement.dead) == len(offsets):
                    span.set_attribute("messaging.operation.name", "reject")
            span.end()

        return end

    # -- spans --

    def _start(
        self,
        name: str,
        operation: str,
        topics: Iterable[str],
        using: str,
        kind: Any,
        attributes: Mapping[str, Any],
        links: Sequence[Link] = (),
        within: Context | None = None,
    ) -> Span:
        common: dict[str, Any] = {
            "messaging.system": "ems",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            **self._server(using),
        }
        names = list(topics)
        if len(names) == 1:
            name = f"{name} {names[0]}"
            common["messaging.destination.name"] = names[0]
        return self._tracer.start_span(
            name, within, kind=kind, attributes={**common, **attributes}, links=links[:MOST_LINKS]
        )

    def _links(self, carriers: Iterable[Mapping[str, str]]) -> list[Link]:
        """Return a link to each different creation context in ``carriers``."""
        found = {}
        for headers in carriers:
            if headers:
                empty = self._context.Context()
                span = self._trace.get_current_span(self._propagate.extract(headers, empty))
                if (at := span.get_span_context()).is_valid:
                    found[at.trace_id, at.span_id] = self._trace.Link(at)
        return list(found.values())

    def _server(self, using: str) -> dict[str, Any]:
        if using not in self._servers:
            given = connections[using].settings_dict
            server = {"server.address": given["HOST"]} if given["HOST"] else {}
            if str(given["PORT"]).isdecimal():
                server["server.port"] = int(given["PORT"])
            self._servers[using] = server
        return self._servers[using]


def _of_messages(messages: Sequence[Any], batch: bool) -> dict[str, Any]:
    if batch:
        return {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    attributes = {
        "messaging.message.id": str(message.message_id),
        "ems.message.offset": message.offset,
        "ems.message.attempt": message.attempt,
    }
    return {**attributes, "ems.message.tag": message.tag} if message.tag else attributes


def _headers(message: Any) -> Mapping[str, str]:
    headers = getattr(message, "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def _fail(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    at = span.get_span_context()
    with suppress(AttributeError):  # a class with slots
        # For the record of the failure, which is written when the span has ended.
        error.ems_span = {"trace_id": f"{at.trace_id:032x}", "span_id": f"{at.span_id:016x}"}  # type: ignore[attr-defined]
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
