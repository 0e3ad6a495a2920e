"""Somebody holds the row of one delivery: a console, a slow admin page, a frozen process. The other
leases of the process go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction

from streams import Outgoing, consumer, send_many
from streams.deliver.handling import Handling
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, UtcNow
from streams.process.keeper import Keeper
from streams.process.shared import connections as ems_connections
from streams.process.shared.connections import KEEPER_LOCK_SECONDS, IdleLimit
from tests.concurrency.locks import no_lock_waits
from tests.consuming import Process
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
]

SOON = timedelta(seconds=5)


@pytest.fixture
def short_lock_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdleLimit]:
    """A keeper's session as in ems_consume, which gives up a locked row soon."""
    assert KEEPER_LOCK_SECONDS <= 2  # many rows may be held, and a lease has 15 s
    monkeypatch.setattr(ems_connections, "KEEPER_LOCK_SECONDS", 1)
    before = dict(connections.settings["default"])
    limit = IdleLimit("default")
    limit.install()
    yield limit
    connection.close()
    connections.settings["default"].update(before)


def test_a_delivery_that_somebody_holds_does_not_end_the_other_leases(
    short_lock_waits, second_connection, monkeypatch
):
    consumer("orders", group="mail", consume_timeout=60)(print)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(2)])
    sequence("default")
    limits = process.feed.limits()
    assert limits
    held, other = (
        Handling(process.claim(1), process.feed.registration, limits) for _turn in range(2)
    )
    # The one that is held comes first in each beat.
    monkeypatch.setattr(process.held, "all", lambda: [held, other])
    Delivery.objects.update(deadline=UtcNow(SOON))
    Consumer.objects.update(lease_until=UtcNow(SOON))
    deadlines = Delivery.objects.filter(deadline__gt=UtcNow(SOON * 2))
    other_is_extended = deadlines.filter(pk=other.delivery.pk)

    beats = Keeper("heartbeat", process.heartbeat.step, process.lifecycle, process.shortage)
    with second_connection().active(), transaction.atomic():
        list(Delivery.objects.select_for_update().filter(pk=held.delivery.pk))
        beats.start()
        with second_connection().active():
            wait_for(other_is_extended.exists)
            wait_for(Consumer.objects.filter(lease_until__gt=UtcNow(SOON * 2)).exists)
            assert not deadlines.filter(pk=held.delivery.pk).exists()
    beats.wake()
    wait_for(deadlines.filter(pk=held.delivery.pk).exists)  # the next beat tries again
    beats.end()
    beats.join(15)
    assert not beats.is_alive()
    assert (held.lost, other.lost) == (False, False)
    assert process.lifecycle.failure is None


def test_many_locked_deliveries_cost_a_heartbeat_no_time(second_connection, monkeypatch):
    """Twelve rows, locked for 20 s, once ended all leases of the process: a wait for each."""
    consumer("orders", group="mail", consume_timeout=60)(print)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(13)])
    sequence("default")
    limits = process.feed.limits()
    assert limits
    registration = process.feed.registration
    handlings = [Handling(process.claim(1), registration, limits) for _turn in range(13)]
    monkeypatch.setattr(process.held, "all", lambda: handlings)
    Delivery.objects.update(deadline=UtcNow(SOON))
    locked = [handling.delivery.pk for handling in handlings[:12]]
    with second_connection().active(), transaction.atomic():
        list(Delivery.objects.select_for_update().filter(pk__in=locked))
        with second_connection().active(), no_lock_waits():
            process.heartbeat.step()
            extended = Delivery.objects.filter(deadline__gt=UtcNow(SOON * 2))
            assert [row.pk for row in extended] == [handlings[12].delivery.pk]
    assert not any(handling.lost for handling in handlings)
    process.heartbeat.step()
    assert Delivery.objects.filter(deadline__gt=UtcNow(SOON * 2)).count() == 13
