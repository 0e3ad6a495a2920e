"""Sets the stage for each act: a row on which it can be carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Model

from streams import Decision, Outgoing, consumer, send, send_many
from streams.consume.outcome.settle import release
from streams.deliver.claim import Claimer
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    HeldKey,
    PreparedRow,
    Reader,
    Redrive,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.operate.acts.act import Act, Consent
from streams.operate.acts.delete import DeleteGroup
from streams.operate.acts.forget import ForgetReader
from streams.operate.acts.give_up import GiveUpCall
from streams.operate.acts.held_keys import RetryKeyNow, SkipKeyToDeadLetters
from streams.operate.acts.order import OrderByKey
from streams.operate.acts.pause import Pause, Resume
from streams.operate.acts.prepared import (
    CheckNow,
    CommitPrepared,
    ResendPrepared,
    RollBackPrepared,
)
from streams.operate.acts.redrive import ResumeRedrive, StopRedrive
from streams.operate.acts.replay import CancelReplay, ReplayToGroup
from streams.operate.acts.reset import ResetGroup, UndoReset
from streams.operate.acts.topic import GrowTopic, RetireTopic
from streams.operate.acts.unblock import RetryNow, SkipToDeadLetters
from streams.operate.redrives import begin
from streams.testing import drain
from tests.preparing import answering, held

AnyAct = type[Act[Any, Any]]


@dataclass(frozen=True)
class Stage:
    """A row for an act: ``make`` creates it, ``arguments`` fit it, ``wrong`` do not.

    ``disturb`` changes it, so that a preview from before is not so any more.
    """

    make: Callable[[], Model]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=dict)
    disturb: Callable[[Any], None] = lambda row: None


def group() -> ConsumerGroup:
    """A group that has handled ten messages."""
    consumer("orders", group="mail")(print)
    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    return ConsumerGroup.objects.select_related("topic").get()


def paused() -> ConsumerGroup:
    ConsumerGroup.objects.filter(pk=group().pk).pause()
    return ConsumerGroup.objects.select_related("topic").get()


def blocked() -> ConsumerGroup:
    """An ordered group that its third message blocks."""

    @consumer("orders", group="mail", ordered=True)
    def handle(message: Any) -> None:
        if message.body == 2:
            raise ValueError("no")

    send_many([Outgoing("orders", n, key="k") for n in range(5)])
    drain()
    return ConsumerGroup.objects.select_related("topic").get()


def ordered() -> ConsumerGroup:
    """An ordered group that nobody serves."""
    consumer("orders", group="mail", ordered=True)(print)
    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    return ConsumerGroup.objects.select_related("topic").get()


def held_key() -> HeldKey:
    """A key that its third message holds, which has failed."""

    @consumer("orders", group="mail", ordered="key")
    def handle(message: Any) -> None:
        if message.body == 2:
            raise ValueError("no")

    send_many([Outgoing("orders", n, key="k") for n in range(3)])
    drain()
    return HeldKey.objects.select_related("group__topic", "partition__topic").get()


def fail_again(row: HeldKey) -> None:
    """Let the message that holds the key fail once more in the meantime."""
    retries = RetryMessage.objects.filter(group=row.group_id, offset=row.head_offset)
    retries.update(attempt=3, due_at=UtcNow())


def reset() -> ConsumerGroup:
    """A group that was reset."""
    row = group()
    ResetGroup(to="4").run(row, "default", Consent("somebody"))
    return row


def slow() -> ConsumerGroup:
    """A group with a call that runs for an hour."""
    row = group()
    consumer_id = "192.0.2.1@1@slow"
    serve(row, consumer_id)
    send("orders", 10)
    sequence("default")
    hour = timedelta(hours=1)
    assert Claimer(row, consumer_id, "worker-0", "default").claim(1, hour)
    Delivery.objects.held().update(claimed_at=UtcNow(-hour))
    return row


def release_all(row: ConsumerGroup) -> None:
    """Let the consumer give back what it has in the meantime."""
    release(Delivery.objects.held().get(group=row.pk))


def again(row: ConsumerGroup) -> None:
    """Reset the group in the meantime."""
    ResetGroup(to="1").run(row, "default", Consent("somebody else"))


def fail(row: ConsumerGroup) -> None:
    """Let what blocks the group fail once more in the meantime."""
    Cursor.objects.filter(group=row.pk).update(attempt=3, blocked_until=UtcNow())


PART = {"from": "2", "to": "5"}


def replayed() -> ConsumerGroup:
    """A group to which a part of the log is being replayed."""
    row = group()
    replay(row)
    return row


def replay(row: ConsumerGroup) -> None:
    ReplayToGroup.of(PART).run(row, "default", Consent("somebody else"))


def cancel(row: ConsumerGroup) -> None:
    CancelReplay().run(row, "default", Consent("somebody else"))


def serve(row: ConsumerGroup, client_id: str = "c") -> None:
    """Let a consumer come in the meantime."""
    lease = UtcNow(timedelta(minutes=1))
    Consumer.objects.create(client_id=client_id, group=row, lease_until=lease)


def redriving() -> Redrive:
    """A redrive at a rate that runs."""
    return begin([group()], "default", rate=1, who="somebody")


def stopped() -> Redrive:
    row = redriving()
    row.stop()
    return row


def stream() -> Reader:
    """A stream of Spark that has read six of ten messages."""
    row = topic()
    place = {str(row.partitions.get().pk): 6}
    return Reader.objects.create(checkpoint="c", topic=row, name="lake", positions=place)


def see(row: Reader) -> None:
    """Let the stream come back in the meantime."""
    Reader.objects.filter(pk=row.pk).update(seen_at=UtcNow(timedelta(seconds=1)))


def topic() -> Topic:
    return group().topic


def grow(row: Topic) -> None:
    GrowTopic(4).run(row, "default", Consent("somebody else"))


def retire(row: Topic) -> None:
    RetireTopic().run(row, "default", Consent("somebody else"))


def prepared() -> PreparedRow:
    """A prepared message that nobody has decided about."""
    answering(Decision.UNKNOWN)
    held("A7")
    return PreparedRow.objects.get()


def dropped() -> PreparedRow:
    answering(Decision.UNKNOWN)
    held("A7").rollback()
    return PreparedRow.objects.get()


def decide(row: PreparedRow) -> None:
    RollBackPrepared().run(row, "default", Consent("somebody else"))


def resend(row: PreparedRow) -> None:
    ResendPrepared().run(row, "default", Consent("somebody else"))


STAGES: dict[AnyAct, Stage] = {
    Pause: Stage(group),
    Resume: Stage(paused),
    RetryNow: Stage(blocked, wrong={"partition": "x"}, disturb=fail),
    SkipToDeadLetters: Stage(blocked, wrong={"partition": "x"}, disturb=fail),
    RetryKeyNow: Stage(held_key, disturb=fail_again),
    SkipKeyToDeadLetters: Stage(held_key, disturb=fail_again),
    ResetGroup: Stage(group, {"to": "2"}, {"to": "soon"}, again),
    UndoReset: Stage(reset, disturb=again),
    ReplayToGroup: Stage(group, PART, {"from": "2", "to": "soon"}, replay),
    CancelReplay: Stage(replayed, wrong={"number": "x"}, disturb=cancel),
    GiveUpCall: Stage(slow, wrong={"delivery": "x"}, disturb=release_all),
    OrderByKey: Stage(ordered, disturb=serve),
    DeleteGroup: Stage(group, disturb=serve),
    GrowTopic: Stage(topic, {"partitions": 5}, {"partitions": 0}, grow),
    RetireTopic: Stage(topic, disturb=retire),
    ForgetReader: Stage(stream, disturb=see),
    StopRedrive: Stage(redriving),
    ResumeRedrive: Stage(stopped),
    CheckNow: Stage(prepared),
    CommitPrepared: Stage(prepared, disturb=decide),
    RollBackPrepared: Stage(prepared, disturb=decide),
    ResendPrepared: Stage(dropped, disturb=resend),
}
