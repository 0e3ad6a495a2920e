"""ems_stress on its own topic: what it counts, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from streams import consumer, send, stress
from streams.consume.subscription import subscribe
from streams.log.lag import Lag, lags
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Delivery, Message, Topic
from streams.operate.topics import create
from streams.stress import Load, Stress, StressResult
from tests.consuming import registered
from tests.processes import Child, Spawn, wait_for

TOPIC = "stress.test"
LONG = ("--topic", TOPIC, "--seconds", "60", "--rate", "200", "--writers", "2")


@pytest.fixture
def started(spawn: Spawn) -> Child:
    """A run that would last a minute, once it sends."""
    child = spawn.command("ems_stress", *LONG)
    wait_for(lambda: Delivery.objects.filter(group__topic__name=TOPIC).exists())
    return child


def children(pid: int) -> list[int]:
    """The consumer, and the writers after it."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def nothing_is_left() -> bool:
    rows = (Topic, Message, ConsumerGroup, Delivery)
    return not any(model._default_manager.exists() for model in rows)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_every_message_is_counted_and_nothing_is_left(spawn: Spawn) -> None:
    words = ("--messages", "200", "--writers", "2", "--groups", "2", "--size", "300", "--json")
    text = spawn.command("ems_stress", "--topic", TOPIC, *words).succeed()
    figures = json.loads(text[text.index("{") :])
    assert [figures[name] for name in ("accepted", "committed", "sequenced")] == [200] * 3
    assert figures["consumed"] == {f"{TOPIC}.0": 200, f"{TOPIC}.1": 200}
    assert set(figures["missing"].values()) == {0}
    assert figures["errors"] == {}
    assert figures["send_ms"]["p50"] <= figures["send_ms"]["p99"]
    assert figures["sound"]
    assert nothing_is_left()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_killed_writer_is_an_error_and_loses_nothing(spawn: Spawn) -> None:
    child = spawn.command(
        "ems_stress", "--topic", TOPIC, "--messages", "400", "--rate", "100", "--writers", "2"
    )
    wait_for(lambda: Delivery.objects.filter(group__topic__name=TOPIC).exists())
    os.kill(children(child.pid)[-1], signal.SIGKILL)
    text = child.succeed()
    assert "killed: 1" in text
    assert nothing_is_left()


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_killed_consumer_is_said(started: Child) -> None:
    os.kill(children(started.pid)[0], signal.SIGKILL)
    for writer in children(started.pid)[1:]:
        os.kill(writer, signal.SIGKILL)
    assert started.wait() == 1
    assert "ended by itself" in started.text()
    assert nothing_is_left()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_stopped_run_deletes_what_it_has_written(started: Child) -> None:
    started.terminate()
    assert started.wait() == 1
    assert nothing_is_left()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_its_processes_end_with_it(started: Child) -> None:
    processes = children(started.pid)
    assert len(processes) == 3
    started.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in processes))


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_a_message_that_is_sequenced_meanwhile_is_left(
    monkeypatch: pytest.MonkeyPatch, clean_registry: None
) -> None:
    consumer(TOPIC, group="mail")(lambda message: None)
    subscribe(registered(TOPIC, "mail"), "default")
    send(TOPIC, 1)

    def lags_and_more(*arguments: Any) -> list[Lag]:
        found = lags(*arguments)
        sequence("default")  # as a consumer does, right after this look
        return found

    monkeypatch.setattr(stress, "lags", lags_and_more)
    load = Load(TOPIC, messages=1, seconds=None, size=20, writers=1, rate=None, groups=1)
    run = Stress(load, "default", print)
    assert run._left() == 1
    assert run._left() == 1  # in the log now


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "orders"), "begin with “stress.”"),
        (("--size", "999999999"), "may have at most"),
        (("--groups", "-1"), "negative"),
        (("--topic", "stress.there"), "already"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], reason: str) -> None:
    create("stress.there", 1, "default")
    with pytest.raises(CommandError, match=reason):
        call_command("ems_stress", *words)
    assert list(Topic.objects.values_list("name", flat=True)) == ["stress.there"]


@pytest.mark.parametrize(
    "result",
    [
        StressResult(accepted=2, committed=1, sequenced=1),
        StressResult(accepted=2, committed=2, sequenced=1),
        StressResult(accepted=2, committed=2, sequenced=2, missing={"a": 0, "b": 1}),
    ],
)
def test_a_lost_message_is_not_sound(result: StressResult) -> None:
    assert not result.sound
    assert StressResult(accepted=2, committed=2, sequenced=2, missing={"a": 0}).sound
