"""The way of a message: who sent it, and what each group's threads have done with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkjobs.__main__ import main
from sparkjobs.config import Config
from streams import Outgoing, Reject, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import Delivery, Message
from streams.testing import advance, drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def test_the_way_of_all_messages_with_a_key_is_told_in_order(
    spark: Any, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    @consumer("orders", group="mail", batch=10)
    def mail(received):
        return {m: ValueError("no") for m in received if m.body == 1 and m.attempt == 1}

    @consumer("orders", group="stock", batch=2)
    def stock(received):
        return {m: Reject("odd") for m in received if m.body == 1}

    keys = ["other", "k", "other", "k"]
    send_many([Outgoing("orders", n, key=key) for n, key in enumerate(keys)])
    sequence("default")
    drain()
    advance(timedelta(minutes=1))
    drain()
    assert main(["--config", config.path, "trace", "--key", "k"]) == 0
    lines = capsys.readouterr().out.splitlines()
    message, _last = Message.objects.filter(key="k").order_by("offset")
    place = f"orders/0@1 #{message.pk}"
    delivery = Delivery.objects.filter(group__name="mail", kind="retry").get()
    who = f"{delivery.client_id}@{delivery.thread}"
    told = [line[27:] for line in lines if place in line]
    assert told[:2] == [f"{place} sent {message.producer}", f"{place} sequenced"]
    assert f"{place} mail done, or failed on its own" in " ".join(told)
    assert f"{place} mail claimed {who} retry attempt 2" in told
    assert f"{place} mail done {who}" in told
    assert f"{place} stock dead odd" in " ".join(told)
    assert not [line for line in lines if "@0 " in line or "@2 " in line]
    assert [line[:26] for line in lines] != []


@pytest.mark.exhaustive
def test_the_way_of_one_message_is_told_by_its_id(
    spark: Any, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer("orders", group="mail")(lambda received: None)
    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    last = Message.objects.latest("offset")
    assert main(["--config", config.path, "trace", "--message", str(last.pk)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[2] for line in lines} == {"orders/0@3"}
    assert main(["--config", config.path, "trace", "--message", "999999"]) == 1
    assert "no such message" in capsys.readouterr().out


@pytest.mark.any_database
def test_a_message_in_the_inbox_is_said_to_be_there_before_spark_starts(
    config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import trace

    monkeypatch.setattr(trace, "session", None)  # nobody calls it
    waiting = send("orders", 1)
    delayed = send("orders", 2, delay=timedelta(hours=1))
    for id_, why in ((waiting.message_id, "not sequenced yet"), (delayed.message_id, "due at ")):
        assert main(["--config", config.path, "trace", "--message", str(id_)]) == 1
        said = capsys.readouterr().out
        assert f"#{id_} is in the inbox of orders/0: sent at " in said
        assert why in said
    assert main(["--config", config.path, "trace", "--message", "999999"]) == 1
    assert "no such message" in capsys.readouterr().out
