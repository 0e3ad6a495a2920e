"""A broadcast consumer reads the alias that it was told, whatever the project's routers say."""

from __future__ import annotations

import pytest
from django.test import override_settings

from streams import Outgoing, send_many
from streams.models import ConsumerGroup, Message, Partition, Topic
from streams.testing import drain
from tests.broadcasting import files, offsets
from tests.faults import Astray

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("prices"),
]


def send_prices(count: int, using: str) -> None:
    send_many([Outgoing("prices", n) for n in range(count)], using=using)


def test_the_stream_of_another_alias_is_a_stream_of_its_own(start, seen):
    send_prices(3, "default")
    start().run_until_idle()
    send_prices(2, "other")
    start(using="other").run_until_idle()
    assert [m.body for m in seen] == [0, 1, 2, 0, 1]
    assert len(files()) == 2


def test_no_router_is_asked(start, seen):
    send_prices(30, "default")
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        client = start()
        client.run_until_idle()
        client.close()
        Partition.objects.using("default").update(first_offset=31, next_offset=32)
        start()
    assert len(seen) == 30
    assert offsets() == {0: 31}
    assert not Topic.objects.using("other").exists()


def test_no_router_is_asked_in_the_tests_of_a_host(seen):
    send_prices(3, "default")
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        assert drain("cache").done == 3
    assert not ConsumerGroup.objects.using("other").exists()
    assert Message.objects.using("default").count() == 3
