"""A call that was given up is told by its delivery only as one that was taken is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streams import consumer, send
from streams.consume.outcome.expire import expire
from streams.log.sequencer import sequence
from streams.models import Delivery
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.mark.parametrize("given_up", [False, True])
def test_the_roll_ups_count_what_was_taken_from_its_process(given_up: bool) -> None:
    figures = pytest.importorskip("sparkjobs.rollup.figures")

    @consumer("orders", group="mail")
    def handle(message: Any) -> None: ...

    send("orders", 0)
    sequence("default")
    held = Process("mail").claim(1)
    Delivery.objects.filter(pk=held.pk).update(started_at=held.claimed_at)
    held.refresh_from_db()
    assert expire(held, 5, timedelta(0), dead=not given_up, given_up=given_up) is not None
    row = Delivery.objects.get(pk=held.pk)
    # It is neither done nor failed: what is left is what _lost() counts, by the error.
    assert (row.state, row.failed, row.progress) == ("RETRY", 0, row.first_offset)
    assert row.error.partition(":")[0] in figures.TAKEN
