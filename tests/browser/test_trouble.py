"""The walk of an operator in trouble: from the index of the admin to what can be done."""

from __future__ import annotations

import pytest
from django.urls import reverse

from streams.models import ConsumerGroup, Cursor, DeadMessage
from tests.browser.chromium import Tab
from tests.browser.shop import page
from tests.browser.worst import make_worst

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

BOX = ".ems-box-lines li"


@pytest.fixture
def trouble(tab: Tab) -> Tab:
    """Show the index: two million behind, one group blocked, a hung call, 5,803 dead letters."""
    make_worst()
    tab.go("/admin/")
    while not any("pdf" in line for line in tab.texts(BOX)):  # the groups are said last
        tab.go("/admin/")  # a busy machine did not say everything within the second that it has
    return tab


@pytest.mark.exhaustive
def test_the_index_says_what_is_wrong_where_and_since_when(trouble: Tab) -> None:
    lines = [" ".join(line.split()).lower() for line in trouble.texts(BOX)]
    for words in (
        ("blocked", "shipping on orders", "for 16 min"),
        ("stuck", "billing on orders", "behind"),
        ("ledger on payments", "5,803 dead letters"),
        ("behind", "exports on orders", "clears in"),
        ("dead letters", "1,000+ dead letters wait for a decision"),
        ("paused", "pdf on invoices", "for 3 d"),
    ):
        assert any(all(word in line for word in words) for line in lines), (words, lines)


def test_from_the_index_one_click_leads_to_what_blocks_a_group_and_another_skips_it(
    trouble: Tab,
) -> None:
    shipping = ConsumerGroup.objects.get(name="shipping")
    cursor = shipping.cursors.get(attempt__gt=1)
    trouble.click(f"{BOX} a:has-text('shipping')")
    assert trouble.path.startswith(page("group", shipping.pk))
    panel = trouble.text(".ems-blockade")
    for words in (
        "BankTimeout: no answer within 30 s",
        "Attempt\n7",
        "16\xa0min",
        "Wait behind it",
    ):
        assert words in panel
    trouble.click(".ems-blockade button:has-text('Skip to dead letters')")
    trouble.click("main button:has-text('Skip to dead letters')")
    trouble.wait(".messagelist", "dead letter")
    assert DeadMessage.objects.filter(group=shipping, offset=cursor.next_offset).exists()
    assert Cursor.objects.get(pk=cursor.pk).attempt == 1


@pytest.mark.exhaustive
def test_a_call_that_hangs_is_marked_long_before_its_timeout(trouble: Tab) -> None:
    trouble.click(f"{BOX} a:has-text('billing on orders: for')")
    assert trouble.text("#clients .ems-state-warning").lower() == "slow"
    assert "usually" in trouble.text("#clients tbody td.ems-text-cell")


@pytest.mark.exhaustive
def test_a_paused_group_is_resumed_from_the_list_of_what_needs_somebody(trouble: Tab) -> None:
    trouble.go(page("changelist"))
    trouble.click("tr:has-text('pdf') a:has-text('Resume it')")
    trouble.click("button:has-text('Resume')")
    trouble.wait(".messagelist", "Resume: 1 consumer group")
    assert not ConsumerGroup.objects.get(name="pdf").paused


@pytest.mark.exhaustive
def test_the_letters_that_wait_are_a_click_away(trouble: Tab) -> None:
    trouble.click(f"{BOX} a:has-text('wait for a decision')")
    assert trouble.path.startswith(reverse("admin:ems_deadmessage_changelist"))
    assert "CardDeclined" in trouble.text(".ems-cards")
