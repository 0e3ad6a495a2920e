"""Gives up a running call that takes much longer than usual."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.consume.limits import delay_after_expiry, known_max_retries
from streams.consume.outcome import notices
from streams.consume.outcome.expire import expire, was_given_up
from streams.consume.outcome.settle import Settlement
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import NoSlowCall, PreviewStale
from streams.log.calls import AT_LEAST, CLAIMS, Call, calls
from streams.models import ConsumerGroup, Delivery, UtcNow
from streams.models.delivery import DeliveryQuerySet
from streams.operate.acts.act import Act, Consent, Effects, Table, argument

# In seconds: a consumer holds the locks of a delivery only for some statements.
LOCK_SECONDS = 3


@dataclass(frozen=True)
class GivenUpCall:
    """A call that takes much longer than usual, and the offsets that its claim has not settled."""

    delivery: int
    partition: int
    offset: int
    last_offset: int
    attempt: int
    client: str
    thread: str
    running_seconds: float
    usual_seconds: float | None


@dataclass(frozen=True)
class GivingUp(Effects):
    """A slow call, and whether it was given up."""

    delivery: Delivery
    call: Call
    done: bool = False
    dead: int = 0

    def texts(self) -> list[str]:
        values = {
            "place": f"{self.delivery.partition.number}@{self.call.progress}",
            "seconds": round(self.call.running.total_seconds()),
            "client": self.call.client,
            "dead": self.dead,
        }
        if not self.done:
            return [
                _("end the call of %(place)s, which runs for %(seconds)d s in %(client)s") % values
            ]
        if self.dead:
            return [_("the call of %(place)s is given up; dead letters: %(dead)d") % values]
        return [_("the call of %(place)s is given up; it comes back as a retry") % values]

    def table(self) -> Table:
        columns = (
            *(_("Delivery"), _("Partition"), _("Offsets"), _("Attempt")),
            *(_("Running"), _("Usually"), _("Client"), _("Thread")),
        )
        call = self.call
        row = (
            *(call.pk, self.delivery.partition.number, f"{call.progress}–{call.last_offset}"),
            *(call.attempt, call.running, call.usual, call.client, call.thread),
        )
        return Table(columns, [row])

    def data(self) -> GivenUpCall:
        call = self.call
        return GivenUpCall(
            delivery=call.pk,
            partition=self.delivery.partition.number,
            offset=call.progress,
            last_offset=call.last_offset,
            attempt=call.attempt,
            client=call.client,
            thread=call.thread,
            running_seconds=call.running.total_seconds(),
            usual_seconds=None if call.usual is None else call.usual.total_seconds(),
        )

    @property
    def shown(self) -> list[int]:
        return [self.call.pk, self.call.progress]


@dataclass(frozen=True)
class GiveUpCall(Act[ConsumerGroup, GivingUp]):
    """The end of a running call, as if its lease had expired."""

    name = "give-up"
    permission = "ems.give_up_consumergroup"
    label = gettext_lazy("Give up a slow call")
    text = gettext_lazy(
        "A call that takes ten times as long as usual has failed, and spends an attempt. A running"
        " call cannot be interrupted: its process finishes the others, ends, and is started again."
    )
    destroys = True
    at_fault = {NoSlowCall: "delivery"}

    delivery: int | None = argument(
        gettext_lazy("the delivery of the call, if several are slow"), default=None, metavar="ID"
    )

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return _held(row, using).filter(claimed_at__lt=UtcNow(-AT_LEAST)).exists()

    def preview(self, row: ConsumerGroup, using: str) -> GivingUp:
        """Raises NoSlowCall, also if it must be said which one."""
        found = slow(row, using, self.delivery)
        if len(found) > 1:
            places = ", ".join(str(one.call.pk) for one in found)
            raise NoSlowCall(_("Several calls are slow: say which delivery (%s).") % places)
        if not found:
            raise NoSlowCall
        return found[0]

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> GivingUp:
        """Raises NoSlowCall as the preview, and PreviewStale."""
        chosen = GiveUpCall(consent.shown[0]) if consent.shown else self
        found = chosen.preview(row, using)
        consent(found)
        settlement = _expired(found.delivery, using)
        if settlement is None:
            raise PreviewStale
        notices.expired(found.delivery, settlement)
        return GivingUp(found.delivery, found.call, done=True, dead=len(settlement.dead))


def slow(group: ConsumerGroup, using: str, delivery: int | None = None) -> list[GivingUp]:
    """Return the running calls of the group that take much longer than usual, the oldest first."""
    rows = _held(group, using).select_related("group__topic", "partition").order_by("claimed_at")
    if delivery is not None:
        rows = rows.filter(pk=delivery)
    held = retrying(list, using, rows[:CLAIMS])
    now = retrying(database_now, using, using)
    found = zip(held, retrying(calls, using, held, now, using), strict=True)
    return [GivingUp(row, call) for row, call in found if call.is_slow]


def _held(group: ConsumerGroup, using: str) -> DeliveryQuerySet:
    return Delivery.objects.using(using).held().filter(group=group.pk)


def _expired(delivery: Delivery, using: str) -> Settlement | None:
    """End the delivery; return None if it is not as it was read."""
    max_retries = known_max_retries(delivery.group, using)
    delay = delay_after_expiry(delivery.group, delivery.attempt)
    tried: list[Settlement] = []

    def work() -> Settlement | None:
        with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
            ended = expire(delivery, max_retries, delay, given_up=True)
            if ended is not None:
                tried.append(ended)
            elif tried and was_given_up(delivery):
                # Committed, and the reply was lost; or another operator has done it meanwhile.
                return tried[-1]
            return ended

    return retrying(work, using)
