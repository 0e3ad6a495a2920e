"""The plans of pulls over HTTP: ranges and keys, whatever lies in the tables."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.consume.registry import registration_of
from streams.http.pulling import clients, outcomes
from streams.http.pulling.groups import PulledGroup
from streams.http.pulling.handing_out import Asked, hand_out
from streams.http.pulling.receipts import named, receipt_of
from tests.plans.seed import LIVE, Seed
from tests.plans.statements import explained
from tests.plans.test_consumer import LIMITS

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

MINUTE = timedelta(minutes=1)
REGISTRATION = registration_of("topic", "group")


def test_a_pull_and_an_ack_read_keys_and_short_ranges(seeded: Seed) -> None:
    group = PulledGroup(seeded.group, REGISTRATION, LIMITS, "default", 0.0)
    asked = Asked("http@x@one", 10, MINUTE, request_id="request-0001")
    with explained() as statements:
        (handed, *_more) = hand_out(group, LIMITS, asked).handed
        delivery = named(receipt_of(handed.delivery)).delivery
        results = [outcomes.Result(message.offset) for message in handed.messages]
        outcomes.acknowledge(delivery, results)
    statements.assert_sound()


def test_a_client_that_leaves_reads_open_deliveries_only(seeded: Seed) -> None:
    with explained() as statements:
        outcomes.forget_client(LIVE, seeded.group.pk, "default")
    statements.assert_sound()


def test_a_lease_is_kept_by_its_key(seeded: Seed) -> None:
    clients._known.clear()
    group = PulledGroup(seeded.group, REGISTRATION, LIMITS, "default", 0.0)
    with explained() as statements:
        clients.keep_while_holding(LIVE, group, 20)
    statements.assert_sound()
