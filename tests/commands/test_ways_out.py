"""What is refused says what can be done instead."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from streams import consumer, send
from streams.errors import GroupActive
from streams.models import ApiToken, Consumer, ConsumerGroup, Partition, UtcNow
from streams.models.consumer import LEASE
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.testing import drain
from tests.commands.conftest import Run
from tests.commands.test_asking import typed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


# -- ems_tokens revoke --


def prefix(run: Run, name: str) -> str:
    return run("ems_tokens", "create", name, "--right", "look").split("_")[1]


def test_a_token_is_revoked_by_its_name_or_its_prefix(run: Run) -> None:
    first, second = prefix(run, "shop"), prefix(run, "board")
    assert run("ems_tokens", "revoke", "shop") == f"revoked: shop ({first})\n"
    assert run("ems_tokens", "revoke", second) == f"revoked: board ({second})\n"
    assert not ApiToken.objects.valid().exists()


def test_the_valid_one_of_several_tokens_of_a_name_is_revoked(run: Run) -> None:
    old = prefix(run, "shop")
    run("ems_tokens", "revoke", old)
    new = prefix(run, "shop")
    assert new in run("ems_tokens", "revoke", "shop")
    with pytest.raises(CommandError, match=rf"shop \({new}\) was revoked before"):
        run("ems_tokens", "revoke", "shop")


def test_none_of_several_valid_tokens_of_a_name_is_revoked_and_the_error_names_them(
    run: Run,
) -> None:
    prefixes = [prefix(run, "shop") for _n in range(2)]
    with pytest.raises(CommandError, match=rf"by its prefix \({', '.join(prefixes)}\)"):
        run("ems_tokens", "revoke", "shop")
    assert ApiToken.objects.valid().count() == 2


def test_an_unknown_token_leads_to_the_list(run: Run) -> None:
    with pytest.raises(CommandError, match="no token 'shop': ems_tokens list shows them"):
        run("ems_tokens", "revoke", "shop")


# -- ems_consume --


def test_a_consumer_that_does_not_exist_is_answered_with_those_that_do() -> None:
    consumer("orders", group="mail")(print)
    consumer("flights", group="board")(print)
    wanted = "No registered consumer matches. Registered are: board on flights, mail on orders."
    with pytest.raises(CommandError) as refused:
        call_command("ems_consume", "--group", "mial")
    assert str(refused.value) == wanted


def test_of_many_registered_consumers_the_first_are_named() -> None:
    for number in range(25):
        consumer("orders", group=f"g{number:02d}")(print)
    with pytest.raises(CommandError, match=r"g19 on orders, and 5 more\.$"):
        call_command("ems_consume", "--group", "mail")


def test_a_project_without_consumers_is_told_where_they_belong() -> None:
    with pytest.raises(CommandError, match=r"^No consumer is registered: see consumers\.py"):
        call_command("ems_consume")


# -- ems_groups reset --


def test_the_refusal_of_a_reset_says_how_to_stop_one_group_and_to_force_it(run: Run) -> None:
    consumer("orders", group="mail")(lambda message: None)
    send("orders", 1)
    drain()
    group = ConsumerGroup.objects.get()
    Consumer.objects.create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    with pytest.raises(GroupActive, match=r"ems_groups pause mail.*--force"):
        Reset(group, towards(Target.parse("earliest")), "default").run()
    run("ems_groups", "pause", "mail")
    run("ems_groups", "reset", "mail", "--to", "earliest", "--force", "--yes")


# -- ems_topics grow --

ONLY = "Partitions can only become more, and a key may go to another one than before:"


def test_on_a_terminal_a_growth_says_it_before_and_asks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("ems_topics", "create", "orders")
    grow = ("ems_topics", "grow", "orders", "--partitions", "3")
    with pytest.raises(CommandError, match=r"^Nothing was done\.$"):
        typed(monkeypatch, "\n", *grow)
    assert Partition.objects.count() == 1
    told, asked = typed(monkeypatch, "y\n", *grow)
    assert told.startswith(f"would grow orders:\n  2 new partitions, 3 in all\n  {ONLY}")
    assert asked.endswith("Add partitions: orders? [y/N] ")
    assert "nothing to do" in run("ems_topics", "grow", "orders", "--partitions", "3", "--yes")
