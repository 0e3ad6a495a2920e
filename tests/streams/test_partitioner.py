"""EMS["PARTITIONER"]: the project chooses the partition, and a wrong choice writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkjobs.errors import BadOption
from streams import Outgoing, send, send_many
from streams.checks import check_settings
from streams.errors import InvalidMessage, UnknownPartition
from streams.models import Message
from streams.operate.topics import create

pytestmark = [pytest.mark.django_db]

HERE = "tests.streams.test_partitioner"
answer: Any = None
asked: list[tuple[Any, ...]] = []


def chosen(topic: str, key: str | None, headers: Any, count: int) -> Any:
    asked.append((topic, key, dict(headers), count))
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture
def answers(
    ems_settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], None]:
    create("orders", 3, "default")
    ems_settings(PARTITIONER=f"{HERE}.chosen")
    asked.clear()
    return lambda value: monkeypatch.setattr(f"{HERE}.answer", value)


def test_it_chooses_the_partition_of_a_send_and_of_a_list(answers):
    answers(2)
    assert send("orders", 1, key="k", headers={"tenant": "a"}).partition == 2
    (result,) = send_many([Outgoing("orders", 1)])
    assert result.partition == 2
    assert asked == [("orders", "k", {"tenant": "a"}, 3), ("orders", None, {}, 3)]
    assert set(Message.objects.values_list("partition__number", flat=True)) == {2}


def test_the_partition_that_a_send_names_is_stronger(answers):
    answers(2)
    assert send("orders", 1, partition=1).partition == 1
    with pytest.raises(UnknownPartition):
        send("orders", 1, partition=3)
    assert asked == []


def test_it_is_not_asked_for_a_topic_of_one_partition(answers):
    answers(RuntimeError("never"))
    assert send("bills", 1).partition == 0


@pytest.mark.parametrize("value", [3, -1, "0", 1.0, None, True, RuntimeError("a bug")])
@pytest.mark.parametrize("many", [False, True])
def test_a_wrong_answer_is_an_invalid_message_and_nothing_is_written(answers, value, many):
    answers(value)
    with pytest.raises(InvalidMessage):
        send_many([Outgoing("bills", 0), Outgoing("orders", 1)]) if many else send("orders", 1)
    assert not Message.objects.exists()


@pytest.mark.parametrize("value", ["nowhere", 5, f"{HERE}.nowhere", "tests.nowhere.at_all"])
def test_one_that_cannot_be_had_is_found_by_the_checks(ems_settings, value):
    ems_settings(PARTITIONER=value)
    (found,) = check_settings()
    assert (found.id, "PARTITIONER" in found.msg) == ("ems.E001", True)


@pytest.mark.spark
def test_the_replay_of_the_archive_uses_it(answers):
    from sparkjobs.placement import Placement

    answers(1)
    partition_of = Placement("orders", 3, f"{HERE}.chosen").partitioner()
    assert partition_of("k", '{"tenant": "a"}', 0) == 1
    assert asked == [("orders", "k", {"tenant": "a"}, 3)]
    answers(3)
    with pytest.raises(InvalidMessage):
        partition_of("k", None, 0)


@pytest.mark.spark
def test_the_replay_refuses_where_it_cannot_import_it():
    from sparkjobs.placement import Placement

    with pytest.raises(BadOption, match="cannot be imported"):
        Placement("orders", 3, "shop.partitions.by_tenant").partitioner()
    with pytest.raises(BadOption, match="cannot be imported"):
        Placement("orders", 3, f"{HERE}.nowhere").partitioner()
