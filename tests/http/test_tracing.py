"""A request that names a span: the span of its send is a child of that one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streams import telemetry, tracing
from streams.models import Message
from tests.http.conftest import Api, MakeToken
from tests.http.test_produce import ORDERS, TRACEPARENT

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(telemetry, "observers", ())
    telemetry.look_for(tracing.look)
    yield made
    telemetry.look_for(None)


def test_the_span_of_a_send_continues_that_of_the_request(
    exporter: InMemorySpanExporter, api: Api, make_token: MakeToken
) -> None:
    api.token = make_token("send:orders")
    assert api.post(ORDERS, {}, traceparent=TRACEPARENT).status_code == 201
    assert api.post(ORDERS, {}).status_code == 201
    first, second = exporter.get_finished_spans()
    assert first.parent is not None
    assert (first.parent.trace_id, first.parent.span_id) == (TRACE, PARENT)
    assert second.parent is None  # the context of a request ends with it
    headers = Message.objects.order_by("pk")[0].headers or {}
    assert first.context is not None
    assert headers["traceparent"].split("-")[1:3] == [
        f"{TRACE:032x}",
        f"{first.context.span_id:016x}",
    ]


def test_a_span_of_the_project_is_the_parent_where_there_is_one(
    exporter: InMemorySpanExporter, api: Api, make_token: MakeToken
) -> None:
    api.token = make_token("send:orders")
    with trace.get_tracer("project").start_as_current_span("request") as span:
        api.post(ORDERS, {}, traceparent=TRACEPARENT)
    sent = next(one for one in exporter.get_finished_spans() if one.name == "send orders")
    assert sent.parent is not None
    assert sent.parent.span_id == span.get_span_context().span_id
