"""Spans of sends and handler calls are those of the table in docs/guides/telemetry.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import transaction

from streams import Decision, Outgoing, Reject, Retry, consumer, send, send_many, telemetry
from streams.conf import Settings
from streams.consume.outcome.settle import release
from streams.database.elsewhere import elsewhere
from streams.errors import ConfigurationError, PreparedConflict, StreamsError
from streams.log.sequencer import sequence
from streams.logs import JsonFormatter
from streams.models import ConsumerGroup, Message, Partition
from streams.operate.rehearsal import rehearse
from streams.operate.replay import Span
from streams.testing import drain
from tests.consuming import Process
from tests.preparing import answering, held
from tests.processes import Spawn

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from streams import tracing

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[InMemorySpanExporter]:
    """Set a tracer provider, as a project does; the next send or delivery begins to trace."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(telemetry, "observers", ())
    monkeypatch.setattr(telemetry, "_failed_at", float("-inf"))
    telemetry.look_for(tracing.look)
    yield made
    telemetry.look_for(None)
    assert "Telemetry failed" not in caplog.text


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def only(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = spans(exporter, name)
    return span


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes, without where the server is."""
    found = dict(span.attributes or {})
    return {name: value for name, value in found.items() if not name.startswith("server.")}


def test_a_send_and_each_handler_of_it_have_a_span_that_links_to_the_send(
    exporter: InMemorySpanExporter,
) -> None:
    for name in ("mail", "stock", "billing"):
        consumer("orders", group=name)(lambda message: None)
    with transaction.atomic():
        result = send("orders", 1, key="secret key", tag="new", headers={"who": "me"})
    drain()
    sent = only(exporter, "send orders")
    assert sent.kind == SpanKind.PRODUCER
    assert attributes(sent) == {
        "messaging.system": "ems",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": str(result.message_id),
        "ems.in_transaction": True,
    }
    handled = spans(exporter, "process orders")
    groups = {attributes(span)["messaging.consumer.group.name"] for span in handled}
    assert groups == {"mail", "stock", "billing"}
    for span in handled:
        assert span.kind == SpanKind.CONSUMER
        assert span.parent is None
        assert linked(span) == [span_id(sent)]
        found = attributes(span)
        assert found.pop("messaging.client.id")
        assert found.pop("ems.delivery.id")
        assert found.pop("messaging.consumer.group.name")
        assert found == {
            "messaging.system": "ems",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "0",
            "messaging.message.id": str(result.message_id),
            "ems.message.offset": 0,
            "ems.message.attempt": 1,
            "ems.message.tag": "new",
        }
    assert "secret key" not in "".join(span.to_json() for span in handled)


def test_one_trace_is_seen_in_what_an_exporter_writes(exporter: InMemorySpanExporter) -> None:
    """The trace of one order to three handlers, as JSON: each names the send in its links."""
    for name in ("mail", "stock", "billing"):
        consumer("orders", group=name)(lambda message: None)
    send("orders", 1)
    drain()
    written = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    (sent,) = (span for span in written if span["kind"] == "SpanKind.PRODUCER")
    links = [link["context"] for span in written for link in span["links"]]
    assert [one["trace_id"] for one in links] == [sent["context"]["trace_id"]] * 3


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_span_of_a_send_is_about_the_database_of_its_topic(
    exporter: InMemorySpanExporter, ems_settings: Any
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    with transaction.atomic(using="other"):
        send("clicks", 1)
    assert attributes(only(exporter, "send clicks"))["ems.in_transaction"] is True


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_span_of_what_settles_a_failure_names_the_topic_of_its_database(
    exporter: InMemorySpanExporter, ems_settings: Any, settings: Any
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    settings.DATABASE_ROUTERS = ["streams.routers.StreamsRouter"]

    @consumer("clicks", group="count")
    def count(message):
        raise Reject("odd")

    send("clicks", 1)
    drain("count")  # this process creates the group
    assert len(spans(exporter, "settle clicks")) == 1


def test_a_send_of_a_handler_belongs_to_its_span(exporter: InMemorySpanExporter) -> None:
    @consumer("orders", group="mail")
    def mail(message):
        send("letters", message.body)

    send("orders", 1)
    drain()
    inner = only(exporter, "send letters")
    assert inner.parent is not None
    assert inner.parent.span_id == span_id(only(exporter, "process orders"))


@pytest.mark.django_db(transaction=True)
def test_a_send_on_another_connection_belongs_to_the_span_of_its_caller(
    exporter: InMemorySpanExporter,
) -> None:
    with trace.get_tracer("shop").start_as_current_span("order"):
        elsewhere("default", lambda: send("orders", 1))
    parent = only(exporter, "send orders").parent
    assert parent is not None
    assert parent.span_id == span_id(only(exporter, "order"))


def test_an_async_handler_runs_in_its_span(exporter: InMemorySpanExporter) -> None:
    seen = []

    @consumer("orders", group="mail")
    async def mail(message):
        seen.append(trace.get_current_span().get_span_context().span_id)

    send("orders", 1)
    drain()
    assert seen == [span_id(only(exporter, "process orders"))]


@pytest.mark.parametrize("part", ["_start", "_continued"])
def test_tracing_that_fails_changes_no_outcome(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    seen: list[Any] = []
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    monkeypatch.setattr(tracing.Tracing, part, Mock(side_effect=RuntimeError))
    send("orders", 1)
    assert drain().done == 1
    assert seen == [1]


def test_many_messages_are_one_span_with_one_context(exporter: InMemorySpanExporter) -> None:
    @consumer("orders", group="mail", batch=10)
    def mail(messages):
        pass

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    sent, handled = only(exporter, "send orders"), only(exporter, "process orders")
    assert attributes(sent)["messaging.batch.message_count"] == 3
    assert linked(handled) == [span_id(sent)]
    found = attributes(handled)
    assert found["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in found
    send_many([Outgoing("orders", 1), Outgoing("goods", 1)])
    assert "messaging.destination.name" not in attributes(only(exporter, "send"))


def test_a_batch_links_to_at_most_128_sends(exporter: InMemorySpanExporter) -> None:
    @consumer("orders", group="mail", batch=200)
    def mail(messages):
        pass

    for number in range(129):
        send("orders", number)
    drain()
    handled = only(exporter, "process orders")
    assert len(handled.links) == 128
    assert attributes(handled)["messaging.batch.message_count"] == 129


def test_a_context_that_the_caller_has_given_is_left_as_it_is(
    exporter: InMemorySpanExporter,
) -> None:
    consumer("orders", group="mail")(lambda message: None)
    send("orders", 1, headers={"traceparent": PARENT, "who": "me"})
    assert Message.objects.get().headers == {"traceparent": PARENT, "who": "me"}
    drain()
    given = int("b7ad6b7169203331", 16)
    assert linked(only(exporter, "send orders")) == [given]
    assert linked(only(exporter, "process orders")) == [given]


def test_a_commit_and_the_handlers_link_to_the_prepare(exporter: InMemorySpanExporter) -> None:
    consumer("orders", group="mail")(lambda message: None)
    answering(Decision.UNKNOWN)
    first = held("A7")
    again = held("A7")  # with a span, and so a traceparent, of its own
    assert (first.created, again.created) == (True, False)
    prepared = spans(exporter, "prepare orders")[0]
    assert prepared.kind == SpanKind.PRODUCER
    found = attributes(prepared)
    assert found["messaging.operation.type"] == "create"
    first.commit()
    committed = only(exporter, "send orders")
    assert committed.kind == SpanKind.CLIENT
    assert linked(committed) == [span_id(prepared)]
    found = attributes(committed)
    assert found["messaging.operation.name"] == "commit"
    assert found["messaging.message.id"] == str(Message.objects.get().pk)
    drain()
    assert linked(only(exporter, "process orders")) == [span_id(prepared)]


def test_a_repeated_prepare_may_carry_another_trace() -> None:
    answering(Decision.UNKNOWN)
    other = PARENT.replace("0af7", "1bf8")
    assert held("A7", headers={"traceparent": PARENT, "who": "me"}).created
    assert not held("A7", headers={"traceparent": other, "who": "me"}).created
    with pytest.raises(PreparedConflict):
        held("A7", headers={"traceparent": PARENT, "who": "you"})


def test_headers_carry_the_context_and_the_baggage(exporter: InMemorySpanExporter) -> None:
    seen = []

    @consumer("orders", group="mail")
    def mail(message):
        seen.append(baggage.get_baggage("tenant"))

    token = context.attach(baggage.set_baggage("tenant", "7"))
    send("orders", 1, headers={"who": "me"})
    context.detach(token)
    headers = Message.objects.get().headers or {}
    assert set(headers) == {"who", "traceparent", "baggage"}
    assert f"{span_id(only(exporter, 'send orders')):016x}" in headers["traceparent"]
    drain()
    assert seen == ["7"]
    assert baggage.get_baggage("tenant") is None


def test_the_send_may_be_the_parent(exporter: InMemorySpanExporter, ems_settings: Any) -> None:
    ems_settings(TRACE_PARENT="parent")
    consumer("orders", group="mail")(lambda message: None)
    send("orders", 1)
    drain()
    handled, sent = only(exporter, "process orders"), only(exporter, "send orders")
    assert handled.parent is not None
    assert handled.parent.span_id == span_id(sent)
    assert linked(handled) == []
    exporter.clear()
    send("orders", 2)
    with trace.get_tracer("test").start_as_current_span("ambient") as ambient:
        drain()
    handled, sent = only(exporter, "process orders"), only(exporter, "send orders")
    assert handled.parent is not None
    assert handled.parent.span_id == ambient.get_span_context().span_id
    assert linked(handled) == [span_id(sent)]


@pytest.mark.parametrize(
    ("error", "operation", "dead"),
    [(ValueError("no"), "nack", False), (Retry(), "nack", False), (Reject("odd"), "reject", True)],
)
def test_a_failure_is_an_error_of_its_span_and_of_what_settles_it(
    exporter: InMemorySpanExporter, error: Exception, operation: str, dead: bool
) -> None:
    @consumer("orders", group="mail")
    def mail(message):
        raise error

    send("orders", 1)
    drain()
    handled, settled = only(exporter, "process orders"), only(exporter, "settle orders")
    assert handled.status.status_code == StatusCode.ERROR
    assert attributes(handled)["error.type"] == type(error).__name__
    assert [event.name for event in handled.events] == ["exception"]
    assert settled.kind == SpanKind.CLIENT
    assert linked(settled) == [span_id(handled)]
    found = attributes(settled)
    assert found["messaging.operation.name"] == operation
    assert found["messaging.operation.type"] == "settle"
    assert found["ems.dead"] is dead


def test_messages_of_a_batch_that_failed_are_errors_of_its_span(
    exporter: InMemorySpanExporter,
) -> None:
    @consumer("orders", group="mail", batch=10)
    def mail(messages):
        return {messages[1]: KeyError("x")}

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    handled = only(exporter, "process orders")
    assert attributes(handled)["error.type"] == "KeyError"
    assert linked(only(exporter, "settle orders")) == [span_id(handled)]


def test_what_is_given_back_is_a_span(exporter: InMemorySpanExporter) -> None:
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    release(process.claim())
    assert attributes(only(exporter, "settle orders"))["messaging.operation.name"] == "release"


def test_a_failed_send_is_an_error(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(StreamsError):
        send("orders", object())
    sent = only(exporter, "send orders")
    assert attributes(sent)["error.type"] == "NotSerializable"
    assert sent.status.status_code == StatusCode.ERROR
    assert not trace.get_current_span().get_span_context().is_valid
    for headers in ("text", {"a": 1}, [("a", "b")]):
        with pytest.raises(StreamsError):
            send("orders", 1, headers=headers)  # type: ignore[arg-type]


def test_without_a_provider_nothing_is_traced_and_no_header_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telemetry.look_for(tracing.look)
    send("orders", 1)
    assert telemetry.observers == ()
    assert Message.objects.get().headers is None
    telemetry.look_for(None)


def test_tracing_may_be_turned_off(exporter: InMemorySpanExporter, ems_settings: Any) -> None:
    ems_settings(TRACING=False)
    send("orders", 1)
    assert exporter.get_finished_spans() == ()
    assert Message.objects.get().headers is None


@pytest.mark.parametrize(("key", "value"), [("TRACING", "yes"), ("TRACE_PARENT", "child")])
def test_settings_of_tracing_are_checked(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        Settings(**{key: value})  # type: ignore[arg-type]


def test_tracing_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.conf.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="otel"):
        Settings(TRACING=True)
    assert Settings().TRACING is None


def test_the_record_of_a_failure_names_its_span(
    exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    @consumer("orders", group="mail")
    def mail(message):
        raise ValueError("no")

    send("orders", 1)
    drain()
    (record,) = (one for one in caplog.records if getattr(one, "ems_event", "") == "handler.failed")
    row = json.loads(JsonFormatter().format(record))
    handled = only(exporter, "process orders")
    assert row["span_id"] == f"{span_id(handled):016x}"
    assert handled.context is not None
    assert row["trace_id"] == f"{handled.context.trace_id:032x}"
    assert not [name for name in row if name.startswith("ems_span")]
    record.otelSpanID = "0" * 15 + "7"  # of logging's own instrumentation
    record.otelTraceID = "0"  # which says so where there is none
    row = json.loads(JsonFormatter().format(record))
    assert row["trace_id"] == f"{handled.context.trace_id:032x}"


FORKED = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from streams import send
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
send("orders", 1)
from django.db import connections
connections.close_all()
pid = os.fork()
send("orders", 2)
connections.close_all()
if pid:
    os.waitpid(pid, 0)
"""


@pytest.mark.django_db(transaction=True)
def test_a_forked_process_goes_on_tracing(spawn: Spawn) -> None:
    text = spawn(FORKED).succeed()
    assert text.count('"name": "send orders"') == 3
    parents = [(message.headers or {})["traceparent"] for message in Message.objects.all()]
    assert len(set(parents)) == 3


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_rehearsal_makes_no_span_and_what_it_sends_has_no_context(
    exporter: InMemorySpanExporter,
) -> None:
    """It would look as if the message was handled, and sent, once more."""
    headers = []

    @consumer("orders", group="bill", rehearsable=True)
    def handler(message: Any) -> None:
        send("receipts", message.body)
        headers.append(Message.objects.order_by("pk").last().headers)  # type: ignore[union-attr]

    send("orders", 1)
    drain("bill")
    partition = Partition.objects.get(topic__name="orders")
    group = ConsumerGroup.objects.get(name="bill")
    exporter.clear()
    headers.clear()
    assert rehearse(group, "default", spans=[Span(partition, 0, 1)], by="ann").all_pass
    assert exporter.get_finished_spans() == ()
    assert headers == [None]
    send("orders", 2)
    assert [span.name for span in exporter.get_finished_spans()] == ["send orders"]
