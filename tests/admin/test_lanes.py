"""The lanes of a message: a bar for each stretch of time, on one axis, and the way to a replay."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.urls import reverse

from streams.admin.parts.lanes import NARROWEST, WIDTH, Lanes
from streams.models import ConsumerGroup, Delivery, Message, RetryMessage, State
from streams.observe.trace import GroupTrace, TracedAttempt
from tests.monitoring.test_pages import Elements

START = datetime(2026, 11, 22, 10, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(
    number: int, claimed: float, begun: float, ended: float, error: str = ""
) -> TracedAttempt:
    delivery = Delivery(
        attempt=number,
        claimed_at=after(claimed),
        started_at=after(begun),
        finished_at=after(ended),
        deadline=after(ended + 60),
        client_id="10.0.0.1@7@abc",
        thread="mail-0",
        state=State.RETRY if error else State.DONE,
    )
    took = timedelta(seconds=ended - begun)
    return TracedAttempt(delivery, "failed" if error else "done", error, None, took)


def lanes(*attempts: TracedAttempt, due: float | None = None) -> Lanes:
    message = Message(created_at=START, sequenced_at=after(10), producer="host@1@main")
    retry = None if due is None else RetryMessage(attempt=3, due_at=after(due))
    group = ConsumerGroup(name="mail")
    return Lanes.of(message, [GroupTrace(group, retry=retry, attempts=list(attempts))])


def test_each_attempt_waits_is_claimed_and_runs_on_one_axis():
    drawn = lanes(attempt(1, 20, 30, 40, "ValueError: no"), attempt(2, 80, 90, 100))
    assert (drawn.start, drawn.end) == (START, after(100))
    sent, mail = drawn.lanes
    assert [(bar.x, bar.width, bar.kind) for bar in sent.bars] == [(0, 100, "inbox")]
    assert [(bar.x, bar.width, bar.kind, bar.level) for bar in mail.bars] == [
        (100, 100, "waiting", "quiet"),
        (200, 100, "claimed", "quiet"),
        (300, 100, "running", "bad"),
        (400, 400, "waiting", "quiet"),
        (800, 100, "claimed", "quiet"),
        (900, 100, "running", "good"),
    ]
    assert "ValueError: no" in mail.bars[2].title
    assert "10.0.0.1@7@abc mail-0" in mail.bars[2].title


def test_a_call_of_milliseconds_among_hours_is_still_seen_within_the_axis():
    drawn = lanes(attempt(1, 11, 11.001, 11.002, "no"), attempt(2, 7200, 7200.1, 7200.101))
    bars = [bar for bar in drawn.lanes[1].bars if bar.kind == "running"]
    assert [bar.width for bar in bars] == [NARROWEST, NARROWEST]
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH for bar in bars)


def test_what_is_due_is_drawn_to_the_time_when_it_is():
    drawn = lanes(attempt(1, 20, 30, 50, "no"), due=100)
    last = drawn.lanes[1].bars[-1]
    assert (last.x, last.x + last.width, last.kind, last.level) == (500, 1000, "waiting", "warning")


def test_bars_of_a_lane_follow_each_other():
    drawn = lanes(
        attempt(1, 12, 13, 20, "no"), attempt(2, 40, 41, 60, "no"), attempt(3, 70, 71, 99)
    )
    bars = drawn.lanes[1].bars
    assert all(a.x <= b.x for a, b in pairwise(bars))


@pytest.mark.django_db
def test_the_page_has_a_lane_for_each_group_and_leads_to_a_replay(world, as_role):
    page = reverse("admin:ems_message_change", args=[world.message.pk])
    client = as_role("operator")
    text = client.get(page).text
    assert text.count('<div class="ems-lane">') == 4  # the sending, and three groups
    assert "<rect" in text
    assert Elements(text[text.index('class="ems-lanes"') :]).refused == []
    inside = text[text.index('id="message_form"') :]
    inside = inside[: inside.index("</form>")]
    assert "<form" not in inside[1:]  # a browser drops a form within a form
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', inside))
    buttons = re.findall(r'name="_selected_action" value="(\d+)" formaction="([^"]*)"', inside)
    assert len(buttons) == 3
    shown = client.post(buttons[0][1], {**fields, "_selected_action": buttons[0][0]})
    assert "replay 1: 1 message: orders/0@" in shown.text
    assert "Replay it to this group" not in as_role("viewer").get(page).text
