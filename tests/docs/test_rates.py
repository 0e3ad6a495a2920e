"""The code and the commands of docs/guides/rates.md do what the page says."""

from __future__ import annotations

import re

import pytest
from django.core.management import call_command

from streams import send
from streams.consume.registry import registrations
from streams.consume.subscription import subscribe
from streams.models import ConsumerGroup, RetryMessage
from tests.consuming import Process
from tests.docs.documents import DOCS

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

PAGE = (DOCS / "guides" / "rates.md").read_text()


def test_the_consumers_of_the_page_have_the_rates_that_it_says() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec("\n".join(code), {})  # noqa: S102 - our own page
    assert {one.group: str(one.rate) for one in registrations()} == {
        "mail": "50/s, burst=5",
        "stock": "50/s, burst=100",
        "imports": "5/s, burst=1",
        "webhooks": "60/m, burst=1",
    }


@pytest.mark.django_db(transaction=True)
def test_each_key_of_the_page_has_its_own_rate() -> None:
    test_the_consumers_of_the_page_have_the_rates_that_it_says()
    for name in ("tenant 1", "tenant 1", "tenant 2"):
        send("imports", name, headers={"tenant": name})
    for host in ("a.example", "b.example", "a.example"):
        send("orders", {"host": host})
    for group, waits in (("imports", [1]), ("webhooks", [2])):
        process = Process(group)
        process.run_until_idle()
        assert process.feed.totals.done == 2
        rows = RetryMessage.objects.filter(group__name=group, attempt=1)
        assert list(rows.values_list("offset", flat=True)) == waits


def test_the_commands_of_the_page_change_the_rate() -> None:
    test_the_consumers_of_the_page_have_the_rates_that_it_says()
    for one in registrations(groups=("mail",)):
        subscribe(one, "default")
    found = []
    for rate in re.findall(r"ems_groups set mail --rate (.+)", PAGE):
        call_command("ems_groups", "set", "mail", "--rate", rate.strip('"'))
        found.append(ConsumerGroup.objects.get().rate_in_force)
    assert found == ["10/s, burst=5", "", "50/s, burst=5"]
