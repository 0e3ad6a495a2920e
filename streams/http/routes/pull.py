"""Hands messages to clients that pull them, and takes what they say of these."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.http import HttpResponse
from ninja import Router, Status
from pydantic import Field

from streams.api import ReceivedMessage
from streams.conf import MAX_BATCH, MAX_HOLD, database
from streams.deliver.reading import stored
from streams.errors import InvalidValue, LeaseLost, StreamsError
from streams.http import threads
from streams.http.access import ApiRequest, identified_again, needs
from streams.http.fields import Answer, Id, Instant, Request, body_out, joined
from streams.http.hot import hot
from streams.http.problems import Problem, problem_of
from streams.http.pulling import clients, holding, outcomes, poller
from streams.http.pulling.groups import ensure_group, fresh, pulled
from streams.http.pulling.handing_out import Asked, Found, Handed, hand_out, take_back
from streams.http.pulling.receipts import Named, named, receipt_of, remember, remembered
from streams.http.pulling.waiting import waiting
from streams.http.threads import on_pool
from streams.log.bodies import StoredMessage
from streams.models import ConsumerGroup, Delivery
from streams.nouns.noun import written
from streams.sharding import alias_of
from streams.tracing import continued
from streams.wakeup import announce

router = Router(tags=["Consume"])

# Acks of one request: each is a statement or several, on one thread.
MAX_ACKS = 100

Batch = Annotated[int, Field(ge=1, le=MAX_BATCH)]
Receipt = Annotated[str, Field(max_length=200, description="What the pull gave with a delivery.")]
Reason = Annotated[str, Field(max_length=10_000)]


class NewGroup(Request):
    """How a group is made; what is absent is as EMS has it for all groups."""

    start: Literal["earliest", "latest"] | Instant | None = Field(
        None, description="Needed where the topic holds messages already."
    )
    ordered: bool | Literal["key"] = Field(
        False,
        description=(
            "One message of a partition after the other; with “key” a failed one holds back only"
            " those of its key."
        ),
    )
    max_retries: Annotated[int, Field(ge=0, le=10_000)] | None = None
    consume_timeout: Annotated[int, Field(ge=1, le=86_400)] | None = Field(
        None, description="In seconds."
    )
    batch: Batch | None = None


class Group(Answer):
    topic: str
    group: str
    ordered: bool | Literal["key"]
    max_retries: int | None
    consume_timeout: int | None
    batch: int | None
    paused: bool


class ResultIn(Request):
    offset: Id
    outcome: Literal["done", "retry", "reject", "fail"] = "done"
    reason: Reason = ""
    delay: float | None = Field(None, description="Of a retry, in seconds.")


class Ack(Request):
    receipt: Receipt
    results: Annotated[list[ResultIn], Field(min_length=1, max_length=MAX_BATCH)]


class Acks(Request):
    """Acks of several deliveries; each is recorded, or refused, by itself."""

    acks: Annotated[list[Ack], Field(min_length=1, max_length=MAX_ACKS)]


class Settled(Answer):
    open: int
    progress: int


class RefusedAck(Answer):
    """Why one of several acks is refused: what a request with it alone is answered."""

    status: int
    code: str
    detail: str


class Acked(Answer):
    """What became of one of several acks; with a ``problem`` nothing of it is recorded."""

    open: int | None = None
    progress: int | None = None
    problem: RefusedAck | None = None


class AllAcked(Answer):
    acks: list[Acked]


class Pull(Request):
    """A request for messages: at most ``batch``, each handled within ``timeout`` seconds."""

    client: str = Field(description="Who asks. One name for each process or thread.")
    batch: Batch | None = None
    hold: float = Field(0, ge=0, le=MAX_HOLD, description="Seconds to wait for the first one.")
    timeout: float | None = Field(None, description="In seconds; by default that of the group.")
    request_id: Annotated[str, Field(min_length=8, max_length=200)] | None = Field(
        None, description="A repeated request with it gets the same deliveries again."
    )
    acks: Annotated[list[Ack], Field(max_length=MAX_ACKS)] = Field(
        [], description="Are recorded first, whether or not there is anything to hand out."
    )


class Message(Answer):
    offset: int
    message_id: int
    key: str | None
    tag: str
    headers: dict[str, str]
    body: Any
    body_type: Literal["json", "text", "bytes"]
    producer: str
    created_at: Instant
    sequenced_at: Instant | None


class DeliveryOut(Answer):
    """One claim; acknowledge its messages from the first one on, by its receipt."""

    receipt: str
    partition: int
    first_offset: int
    last_offset: int
    kind: Literal["new", "retry", "replay"]
    attempt: int
    deadline: Instant
    messages: list[Message]


class Pulled(Answer):
    deliveries: list[DeliveryOut]
    paused: bool
    retry_after: int | None = Field(None, description="Not held: too many are. Seconds.")
    acks: list[Acked] = Field([], description="One for each of the request, in its order.")


class Extend(Request):
    receipt: Receipt
    timeout: float = Field(description="Seconds from now.")


class Extended(Answer):
    deadline: Instant


class Release(Request):
    receipt: Receipt


class Released(Answer):
    released: int


@router.put("/topics/{topic}/groups/{group}", response={201: Group, 200: Group})
@needs("consume", "{topic}/{group}")
@on_pool
def make_group(request: ApiRequest, topic: str, group: str, new: NewGroup) -> Status[Group]:
    """Make a consumer group; 200: it is there already, and stays as it is."""
    overrides = {
        "max_retries": new.max_retries,
        "consume_timeout": new.consume_timeout,
        "batch": new.batch,
    }
    made, is_new = ensure_group(
        topic, group, database(), start=new.start, ordered=new.ordered, overrides=overrides
    )
    return Status(201 if is_new else 200, _group(topic, made))


@router.post("/topics/{topic}/groups/{group}/pull", response=Pulled)
@hot
@needs("consume", "{topic}/{group}")
async def pull(request: ApiRequest, topic: str, group: str, asked: Pull) -> HttpResponse:
    """Get messages to handle, or wait for some at most ``hold`` seconds."""
    hold = holding.longest(request, asked.hold)
    client = clients.client_id(request.auth.prefix, asked.client)
    seen, acking = Found(), Acking(request, asked.acks)

    async def look() -> Found | None:
        nonlocal seen
        if hold:
            await identified_again(request, "consume", f"{topic}/{group}")
        gone = threading.Event()
        work = threads.on_a_thread(_look, topic, group, client, asked, acking, hold, gone)
        seen = await holding.shielded(work, _taken_back, gone)
        return seen if seen.handed else None

    async def answer(*, refused: bool = False) -> HttpResponse:
        try:
            return _answer(seen, acking.told, refused=refused)
        except Exception:
            await _taken_back(seen)
            raise

    if not hold:
        await look()
        return await answer()
    using = alias_of(topic)
    known = fresh(topic, group, using)
    if known is None:
        known = await threads.on_a_thread(pulled, topic, group, using)
    with waiting(known.using).for_group(known) as waiter, _held(request) as admitted:
        await holding.until_found(look, waiter, hold if admitted else 0)
        waiter.leaves_more = seen.leaves_more
    return await answer(refused=not admitted)


@router.post("/deliveries/ack", response=Settled)
@hot
@needs("consume")
@on_pool
def acknowledge(request: ApiRequest, ack: Ack) -> Settled:
    """Say what became of messages, from the first open one on; the last one ends the delivery."""
    settled = _acknowledged(request, ack)
    return Settled(open=settled.open, progress=settled.progress)


@router.post("/deliveries/acks", response=AllAcked)
@hot
@needs("consume")
@on_pool
def acknowledge_all(request: ApiRequest, acks: Acks) -> AllAcked:
    """Say what became of messages of several deliveries; one that is refused stops no other."""
    return AllAcked(acks=[_acked(request, ack) for ack in acks.acks])


@router.post("/deliveries/extend", response=Extended)
@hot
@needs("consume")
@on_pool
def extend(request: ApiRequest, extension: Extend) -> Extended:
    """Hold a delivery for ``timeout`` seconds from now."""
    delivery = _named(request, extension.receipt)
    return Extended(deadline=outcomes.extend(delivery, extension.timeout))


@router.post("/deliveries/release", response=Released)
@hot
@needs("consume")
@on_pool
def release(request: ApiRequest, release: Release) -> Released:
    """Give back what is open of a delivery: others get it, and no attempt is spent."""
    delivery = _named(request, release.receipt)
    count = delivery.last_offset + 1 - delivery.progress
    outcomes.give_back(delivery)
    _wake(delivery)
    return Released(released=count)


@router.delete("/topics/{topic}/groups/{group}/clients/{client}", response={204: None})
@needs("consume", "{topic}/{group}")
@on_pool
def leave(request: ApiRequest, topic: str, group: str, client: str) -> Status[None]:
    """Give back all that a client holds in the group: it no longer pulls."""
    using = database()
    known = pulled(topic, group, using)
    name = clients.client_id(request.auth.prefix, client)
    if outcomes.forget_client(name, known.group.pk, using):
        _wake_group(topic, known.group.pk, using)
    return Status(204, None)


@dataclass
class Acking:
    """The acks of a pull, and what became of those that are recorded or refused."""

    request: ApiRequest
    given: Sequence[Ack]
    told: list[Acked] = field(default_factory=list)

    def record(self) -> None:
        """Record those that are left: of several looks of a request, the first does it."""
        with continued(self.request.headers) if self.given else nullcontext():
            for ack in self.given[len(self.told) :]:
                self.told.append(_acked(self.request, ack))


def _look(
    topic: str,
    name: str,
    client: str,
    asked: Pull,
    acking: Acking,
    hold: float,
    gone: threading.Event,
) -> Found:
    """Record the acks of a client, and claim once for it, unless it is gone."""
    using = alias_of(topic)
    group = pulled(topic, name, using)
    waiting(using).concern(topic)
    limits = group.limits
    timeout = outcomes.checked_timeout(asked.timeout, limits) if limits else None
    acking.record()
    if gone.is_set():
        return Found()
    # What comes later must come into the log, and what others have lost be retried.
    poller.ensure(using)
    if limits is None or timeout is None:
        clients.keep_while_holding(client, group, hold)
        return Found(paused=True)
    wanted = Asked(client, asked.batch or limits.batch, timeout, hold, asked.request_id or "")
    return hand_out(group, limits, wanted)


def _acknowledged(request: ApiRequest, ack: Ack) -> outcomes.Settled:
    results = [outcomes.Result(r.offset, r.outcome, r.reason, r.delay) for r in ack.results]
    if known := remembered(ack.receipt, results[0].offset):
        with suppress(LeaseLost, InvalidValue):  # not as this process knows it: it is read
            return _settled(request, known, results)
    return _settled(request, named(ack.receipt), results)


def _settled(
    request: ApiRequest, found: Named, results: Sequence[outcomes.Result]
) -> outcomes.Settled:
    delivery = found.delivery
    _needs_group(request, delivery)
    settled = outcomes.acknowledge(delivery, results, found.age)
    if settled.open:
        remember(found)
    _wake(delivery)
    return settled


def _acked(request: ApiRequest, ack: Ack) -> Acked:
    """Record one of several acks, or tell why it is refused.

    What is a fault of this server, or of its database, is that of the request: it may be repeated.
    """
    try:
        settled = _acknowledged(request, ack)
    except (Problem, StreamsError) as error:
        problem = problem_of(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        said = RefusedAck(status=problem.status, code=problem.code, detail=problem.detail)
        return Acked(problem=said)
    return Acked(open=settled.open, progress=settled.progress)


async def _taken_back(found: Found) -> None:
    if found.handed:
        await threads.on_a_thread(take_back, found.handed)
        poller.wake(found.handed[0].delivery.using)


def _held(request: ApiRequest) -> Any:
    return holding.held(request, request.auth.id, request.auth.max_holds)


def _named(request: ApiRequest, receipt: str) -> Delivery:
    """Return the delivery of a receipt whose group the caller may consume."""
    delivery = named(receipt).delivery
    _needs_group(request, delivery)
    return delivery


def _needs_group(request: ApiRequest, delivery: Delivery) -> None:
    request.auth.needs("consume", f"{delivery.group.topic.name}/{delivery.group.name}")


def _wake(delivery: Delivery) -> None:
    """Wake who waits for what the end of the delivery lets others claim."""
    if delivery.group.ordered or delivery.progress <= delivery.last_offset:
        _wake_group(delivery.group.topic.name, delivery.group_id, delivery.using)


def _wake_group(topic: str, group_id: int, using: str) -> None:
    waiting(using).wake_group(group_id)
    announce(using, [topic])


def _group(topic: str, group: ConsumerGroup) -> Group:
    return Group(
        topic=topic,
        group=group.name,
        ordered=group.order,
        max_retries=group.max_retries,
        consume_timeout=group.consume_timeout,
        batch=group.batch,
        paused=group.paused,
    )


def _answer(found: Found, acked: Sequence[Acked], *, refused: bool = False) -> HttpResponse:
    """Return the answer as it is declared; made by hand, since it may have a thousand messages."""
    deliveries = ", ".join(_delivery(handed) for handed in found.handed)
    values = {
        "paused": found.paused,
        "retry_after": holding.RETRY_AFTER if refused and not found.handed else None,
        "acks": [one.model_dump() for one in acked],
    }
    content = joined(values, deliveries=f"[{deliveries}]")
    return HttpResponse(content, content_type="application/json")


def _delivery(handed: Handed) -> str:
    delivery = handed.delivery
    values = {
        "receipt": receipt_of(delivery),
        "partition": delivery.partition.number,
        "first_offset": delivery.progress,
        "last_offset": delivery.last_offset,
        "kind": str(delivery.kind),
        "attempt": delivery.attempt,
        "deadline": handed.deadline and written(handed.deadline),
    }
    messages = ", ".join(message_out(message) for message in handed.messages)
    return joined(values, messages=f"[{messages}]")


def message_out(
    message: ReceivedMessage | StoredMessage, *, with_body: bool = True, **more: Any
) -> str:
    """Return a message as answers have it, as JSON; without its body that is null."""
    row = stored(message)
    sequenced_at = row.sequenced_at
    values = {
        "offset": row.offset,
        "message_id": row.message_id,
        "key": row.key,
        "tag": row.tag,
        "body_type": row.body_type,
        "producer": row.producer,
        "created_at": written(row.created_at),
        "sequenced_at": written(sequenced_at) if sequenced_at else None,
    }
    body = body_out(message.raw_body, row.body_type) if with_body else "null"
    return joined({**values, **more}, headers=row.stored_headers or "{}", body=body)
