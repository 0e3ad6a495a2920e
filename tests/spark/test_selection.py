"""The options that users of Spark's Kafka source know choose what they choose there."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjobs.config import Config
from sparkjobs.errors import BadOption, MessagesPurged
from streams import Outgoing, send, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic
from streams.operate.topics import grow

pytestmark = [pytest.mark.django_db(transaction=True)]

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sent(topic: str, messages: int, body: str = "x") -> Partition:
    """Send messages that were sequenced a second after each other."""
    send_many([Outgoing(topic, body) for _ in range(messages)])
    sequence("default")
    partition = Partition.objects.get(topic__name=topic, number=0)
    for message in Message.objects.filter(partition=partition):
        at = START + timedelta(seconds=message.offset or 0)
        Message.objects.filter(pk=message.pk).update(sequenced_at=at)
    return partition


@pytest.fixture
def planned(config: Config) -> Callable[..., dict[str, list[int]]]:
    """Return the offsets that a batch would read: ``planned(topic="a") == {"a": [0, 1]}``."""
    from sparkjobs.source.datasource import EmsReader
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES

    def run(**options: object) -> dict[str, list[int]]:
        given = {"config": config.path, **{name: str(value) for name, value in options.items()}}
        found: dict[str, list[int]] = {}
        for split in EmsReader(SourceRequest.of(given), MESSAGES).partitions():
            for part in split.ranges:
                found.setdefault(part.topic, []).extend(range(part.first, part.end))
        return {topic: sorted(offsets) for topic, offsets in found.items() if offsets}

    return run


@pytest.fixture
def reader(config: Config) -> Callable[..., Any]:
    """Return the reader of a stream, as Spark would have it."""
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES
    from sparkjobs.source.stream import EmsStreamReader

    def make(**options: object) -> Any:
        given = {"config": config.path, **{name: str(value) for name, value in options.items()}}
        return EmsStreamReader(SourceRequest.of(given), MESSAGES)

    return make


def advanced(reader: Any, start: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = reader.latestOffset(start, reader.getDefaultReadLimit())
    return found


def test_topics_are_named_or_matched(planned) -> None:
    for topic in ("flights", "flights.late", "orders"):
        sent(topic, 2)
    assert set(planned(topics="orders, flights")) == {"orders", "flights"}
    assert set(planned(topicPattern="flights.*")) == {"flights", "flights.late"}
    assert planned(topicPattern="nothing") == {}
    with pytest.raises(BadOption, match="there is no topic 'nowhere'"):
        planned(topics="orders,nowhere")
    with pytest.raises(BadOption, match="give one of them"):
        planned(topics="orders", topic="orders")


def test_offsets_name_places_of_each_partition_and_ends_of_the_log(planned) -> None:
    sent("a", 5)
    sent("b", 5)
    starting = json.dumps({"a": {"0": 3}, "b": {"0": -1}})
    assert planned(startingOffsets=starting) == {"a": [3, 4]}
    ending = json.dumps({"a": {"0": 2}, "b": {"0": -1}})
    assert planned(endingOffsets=ending) == {"a": [0, 1], "b": [0, 1, 2, 3, 4]}
    assert planned(startingOffsets="latest") == {}
    with pytest.raises(BadOption, match="a/0 ends before 5: there is no offset 6"):
        planned(startingOffsets='{"a": {"0": 6}}')
    with pytest.raises(BadOption, match="partitions that are not read: b/0, c/7"):
        planned(topic="a", startingOffsets='{"a": {"0": 1}, "b": {"0": 1}, "c": {"7": 1}}')


def test_times_are_iso_or_milliseconds(planned) -> None:
    sent("a", 10)
    milliseconds = int((START + timedelta(seconds=4)).timestamp() * 1000)
    until = "2026-03-01T12:00:07"
    times = {"startingTimestamp": milliseconds, "endingTimestamp": until}
    assert planned(**times) == {"a": [4, 5, 6]}


def test_data_loss_is_an_error_or_not(planned, reader) -> None:
    partition = sent("a", 10)
    Message.objects.filter(offset__lt=4).delete()
    Partition.objects.update(first_offset=4)
    starting = {"startingOffsets": '{"a": {"0": 2}}'}
    with pytest.raises(MessagesPurged):
        planned(**starting)
    with pytest.raises(MessagesPurged, match="the stream is to begin at offset 2"):
        reader(**starting).initialOffset()
    assert planned(**starting, failOnDataLoss="false") == {"a": [4, 5, 6, 7, 8, 9]}
    lossy = reader(**starting, failOnDataLoss="false")
    assert lossy.initialOffset() == {str(partition.pk): 4}
    # A topic that was deleted, and one that a restored backup has made shorter.
    gone = {"4711": 3, str(partition.pk): 4}
    ends = {"4711": 9, str(partition.pk): 10}
    with pytest.raises(MessagesPurged, match="partition 4711 is gone"):
        reader(topic="a").partitions(gone, ends)
    (split,) = lossy.partitions(gone, ends)
    assert sum(part.rows for part in split.ranges) == 6
    with pytest.raises(MessagesPurged, match="ends at offset 10, and the stream is at 11"):
        advanced(reader(topic="a"), {str(partition.pk): 11})
    assert advanced(lossy, {str(partition.pk): 11}) == {str(partition.pk): 11}


def test_a_stream_begins_where_it_is_told_to(reader) -> None:
    a, b = sent("a", 5), sent("b", 3)
    assert reader(startingOffsets="latest").initialOffset() == {str(a.pk): 5, str(b.pk): 3}
    places = json.dumps({"a": {"0": 2}, "b": {"0": -1}})
    assert reader(startingOffsets=places).initialOffset() == {str(a.pk): 2, str(b.pk): 3}
    at = (START + timedelta(seconds=1)).isoformat()
    assert reader(startingTimestamp=at).initialOffset() == {str(a.pk): 1, str(b.pk): 1}
    for bound in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(BadOption, match="a stream has no end"):
            reader(**{bound: '{"a": {"0": 2}}' if bound == "endingOffsets" else at})


def test_new_topics_and_partitions_that_match_join_a_running_stream(reader) -> None:
    a = sent("flights.a", 2)
    sent("orders", 2)
    running = reader(topicPattern=r"flights\..*", startingOffsets="latest")
    reached = running.initialOffset()
    assert advanced(running, reached) == reached == {str(a.pk): 2}
    b = sent("flights.b", 3)
    grow(Topic.objects.get(name="flights.a"), 2, "default")
    send("flights.a", "x", partition=1)
    sequence("default")
    added = Partition.objects.get(topic__name="flights.a", number=1)
    reached = advanced(running, reached)
    assert reached == {str(a.pk): 2, str(b.pk): 3, str(added.pk): 1}


@pytest.mark.parametrize("starting", ["latest", '{"a": {"0": -1}}'])
def test_the_first_batch_writes_down_where_the_end_was_and_is_empty(starting: str, reader) -> None:
    id_ = str(sent("a", 5).pk)
    first = reader(startingOffsets=starting)
    begun = first.initialOffset()
    sent("a", 2)
    planned = advanced(first, begun)
    assert planned == {id_: 5}
    # Spark asks again when it runs the batch, and after a restart when it repeats it.
    for running in (first, reader(startingOffsets=starting)):
        assert running.initialOffset() == {id_: 7}
        assert running.partitions({id_: 7}, planned) == []
        assert advanced(running, planned) == {id_: 7}
    # A beginning that does not move needs no such batch.
    early = reader(startingOffsets="earliest")
    assert advanced(early, early.initialOffset()) == {id_: 7}


def test_a_stream_does_not_begin_in_the_future(reader) -> None:
    sent("a", 5)
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with pytest.raises(BadOption, match=r"startingTimestamp .* is in the future"):
        reader(startingTimestamp=at).initialOffset()


def test_a_deleted_topic_is_an_error_though_nobody_has_named_it(reader) -> None:
    a, b = sent("a", 2), sent("b", 2)
    running = reader(topicPattern="[ab]")
    reached = running.initialOffset()
    Message.objects.filter(partition=b).delete()
    gone = Partition.objects.filter(pk=b.pk)
    gone.delete()
    Topic.objects.filter(name="b").delete()
    with pytest.raises(MessagesPurged, match=f"partition {b.pk} is gone, or not asked for"):
        advanced(running, reached)
    again = sent("b", 1)  # one that was made again is another
    with pytest.raises(MessagesPurged, match=f"partition {b.pk} is gone"):
        advanced(running, reached)
    lossy = reader(topicPattern="[ab]", failOnDataLoss="false")
    assert advanced(lossy, reached) == {str(a.pk): 2, str(b.pk): 0, str(again.pk): 1}


def test_a_partition_that_joins_with_its_beginning_purged_is_an_error(reader) -> None:
    a, b = sent("a", 2), sent("b", 9)
    Message.objects.filter(partition=b, offset__lt=4).delete()
    Partition.objects.filter(pk=b.pk).update(first_offset=4)
    start = {str(a.pk): 2}
    running = reader()
    with pytest.raises(MessagesPurged, match="b/0: the stream is at offset 0, those before 4"):
        running.partitions(start, advanced(running, start))
    # Where it is none, a limit counts what is there.
    lossy = reader(failOnDataLoss="false", maxMessagesPerTrigger=3)
    end = advanced(lossy, start)
    assert end == {str(a.pk): 2, str(b.pk): 7}
    (split,) = lossy.partitions(start, end)
    assert [(part.first, part.end) for part in split.ranges] == [(4, 7)]


def test_a_batch_is_bounded_in_messages_and_in_bytes(reader) -> None:
    a, b = sent("a", 20, "0123456789"), sent("b", 2, "0123456789")
    start = {str(a.pk): 0, str(b.pk): 0}
    assert advanced(reader(maxMessagesPerTrigger=6), start) == {str(a.pk): 4, str(b.pk): 2}
    assert advanced(reader(maxBytesPerTrigger=75), start) == {str(a.pk): 5, str(b.pk): 2}
    # What one does not need the others get; a limit that is too small stops nobody.
    assert advanced(reader(maxBytesPerTrigger=1), start) == {str(a.pk): 1, str(b.pk): 1}
    both = reader(maxBytesPerTrigger=75, maxMessagesPerTrigger=3)
    assert sum(advanced(both, start).values()) == 3
    assert advanced(reader(), start) == {str(a.pk): 20, str(b.pk): 2}


def test_a_limit_below_the_number_of_partitions_keeps_nobody_waiting(reader) -> None:
    parts = [sent(name, 3) for name in "abc"]
    running = reader(maxMessagesPerTrigger=1)
    reached = {str(part.pk): 0 for part in parts}
    for round_ in (1, 2):
        for _partition in parts:
            reached = advanced(running, reached)
        assert set(reached.values()) == {round_}


def test_a_stream_with_a_limit_in_bytes_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch, reader
) -> None:
    from sparkjobs.source import limits

    monkeypatch.setattr(limits, "STEP", 3)
    partition = sent("a", 20, "0123456789")
    Message.objects.filter(offset__in=(4, 5)).delete()  # holes
    limited, reached, batches = reader(maxBytesPerTrigger=45), {str(partition.pk): 0}, 0
    while (end := advanced(limited, reached)) != reached:
        of_batch = range(reached[str(partition.pk)], end[str(partition.pk)])
        assert Message.objects.filter(offset__in=of_batch).count() <= 4
        reached, batches = end, batches + 1
    assert reached == {str(partition.pk): 20}
    assert batches == 5


def test_a_read_has_as_many_tasks_as_asked_for(config: Config) -> None:
    from sparkjobs.source.datasource import EmsReader
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES

    sent("a", 23)
    request = SourceRequest.of({"config": config.path, "minPartitions": "5"})
    assert len(EmsReader(request, MESSAGES).partitions()) >= 5


def test_the_progress_says_how_far_behind_the_stream_is(reader) -> None:
    a, b = sent("a", 9), sent("b", 2)
    running = reader(maxMessagesPerTrigger=4)
    reached = advanced(running, running.initialOffset())
    assert reached == {str(a.pk): 2, str(b.pk): 2}
    assert running.reportLatestOffset() == {
        str(a.pk): 9,
        str(b.pk): 2,
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 7,
        "avgOffsetsBehindLatest": 3.5,
    }
    # After a restart Spark repeats a batch that it had planned, without asking for another.
    restarted = reader(maxMessagesPerTrigger=4)
    restarted.partitions({str(a.pk): 0, str(b.pk): 0}, reached)
    assert restarted.reportLatestOffset()["maxOffsetsBehindLatest"] == 7


def test_the_names_of_kafka_choose_topics_and_partitions(planned) -> None:
    for topic in ("flights", "flights.late", "orders"):
        sent(topic, 2)
    grow(Topic.objects.get(name="orders"), 2, "default")
    send("orders", "x", partition=1)
    sequence("default")
    assert set(planned(subscribe="orders, flights")) == {"orders", "flights"}
    assert set(planned(subscribePattern="flights.*")) == {"flights", "flights.late"}
    assert planned(assign='{"orders": [1], "flights": [0]}') == {"orders": [0], "flights": [0, 1]}
    with pytest.raises(BadOption, match="partitions that are not there: flights/7, gates/0"):
        planned(assign='{"flights": [0, 7], "gates": [0]}')


def test_times_may_be_of_single_partitions(planned, reader) -> None:
    a, b = sent("a", 10), sent("b", 10)
    four, seven = (int((START + timedelta(seconds=n)).timestamp() * 1000) for n in (4, 7))
    starting = {"startingOffsetsByTimestamp": json.dumps({"a": {"0": four}})}
    ending = {"endingOffsetsByTimestamp": json.dumps({"a": {"0": seven}, "b": {"0": four}})}
    assert planned(**starting, **ending) == {"a": [4, 5, 6], "b": [0, 1, 2, 3]}
    assert reader(**starting).initialOffset() == {str(a.pk): 4, str(b.pk): 0}
    with pytest.raises(BadOption, match="a stream has no end"):
        reader(**ending)
    with pytest.raises(BadOption, match="partitions that are not read: b/0"):
        planned(subscribe="a", **ending)
    late = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    with pytest.raises(BadOption, match=r"startingTimestamp .* is in the future"):
        reader(startingOffsetsByTimestamp=json.dumps({"b": {"0": late}})).initialOffset()


def test_a_stream_waits_for_enough_messages_and_not_for_ever(reader) -> None:
    from sparkjobs.source.limits import Patience

    id_ = str(sent("a", 2).pk)
    waiting = reader(minOffsetsPerTrigger=3, maxTriggerDelay="90s")
    seconds = [0.0]
    waiting.patience = Patience(3, waiting.request.selection.max_delay, lambda: seconds[0])
    reached = advanced(waiting, {id_: 0})
    assert reached == {id_: 2}  # the first one does not wait
    sent("a", 2)
    assert advanced(waiting, reached) == reached
    seconds[0] = 89.9
    assert advanced(waiting, reached) == reached
    seconds[0] = 90.0
    reached = advanced(waiting, reached)
    assert reached == {id_: 4}
    sent("a", 3)
    reached = advanced(waiting, reached)  # enough
    assert reached == {id_: 7}
    sent("a", 1)
    assert advanced(waiting, reached) == reached
    waiting.prepareForTriggerAvailableNow()  # which is to come to its end
    assert advanced(waiting, reached) == {id_: 8}


@pytest.mark.parametrize(
    ("text", "seconds"), [("500", 0.5), ("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 h", 7200)]
)
def test_a_delay_is_said_as_to_spark(text: str, seconds: float) -> None:
    from sparkjobs.source.request import SourceRequest

    given = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert SourceRequest.of(given).selection.max_delay.total_seconds() == seconds


TOPIC = st.text(min_size=1, max_size=3)
OFFSETS = st.dictionaries(TOPIC, st.dictionaries(st.integers(0, 3), st.integers(-2, 12)))


@pytest.mark.any_database
@settings(deadline=None, max_examples=30)
@given(OFFSETS, OFFSETS, st.integers(0, 5), st.integers(5, 12))
def test_offsets_that_are_written_as_json_are_the_places_that_are_read(
    starting: Any, ending: Any, first: int, end: int
) -> None:
    from sparkjobs.source.request import SourceRequest

    options = {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}
    selection = SourceRequest.of(options).selection
    ends = {-2: first, -1: end}
    for topic in {*starting, *ending, "another"}:
        for number in range(4):
            for places, default, found in (
                (starting, first, selection.start),
                (ending, end, selection.end),
            ):
                at = places.get(topic, {}).get(number, None)
                wanted = default if at is None else ends.get(at, at)
                if wanted > end:
                    with pytest.raises(BadOption, match=f"there is no offset {wanted}"):
                        found(topic, number, first, end)
                else:
                    assert found(topic, number, first, end) == wanted


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some),
    max_leaves=6,
)


@pytest.mark.any_database
@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "assign", "bounds"],
)
@settings(deadline=None, max_examples=30)
@given(value=ANYTHING | OFFSETS, cut=st.integers(0, 3))
def test_whatever_is_given_as_json_is_read_or_is_a_bad_option(
    name: str, value: Any, cut: int
) -> None:
    from sparkjobs.source.request import SourceRequest

    text = json.dumps(value)
    with suppress(BadOption):
        SourceRequest.of({name: text[: len(text) - cut]})


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"startingOffsets": "newest"}, "startingOffsets must be earliest, latest or like"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"a": {"0": "1"}}'}, "startingOffsets must be"),
        ({"topicPattern": "("}, "not a regular expression"),
        ({"topics": "a,,b"}, "names with commas"),
        ({"maxBytesPerTrigger": "0"}, "a number above 0"),
        ({"minPartitions": "many"}, "a number above 0"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"startingTimestamp": "soon"}, "must be an ISO time"),
        ({"startingTimestamp": "2026-03-01", "since": "2026-03-01"}, "say the same"),
        ({"startingOffsets": "latest", "start": "1"}, "or bounds, or start and end"),
        ({"table": "dead", "topics": "a"}, "other tables than messages"),
        ({"subscribe": "a", "topics": "a"}, "subscribe and topics say the same"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "give one of them"),
        ({"subscribe": "a", "topic": "a"}, "give one of them"),
        ({"maxOffsetsPerTrigger": "1", "maxMessagesPerTrigger": "1"}, "say the same"),
        ({"assign": '{"a": 0}'}, "assign must be like"),
        ({"assign": '{"a": ["0"]}'}, "assign must be like"),
        ({"assign": "{}"}, "assign names no partition"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": "noon"}}'}, "must be like .*1772366400000"),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 1}}', "startingTimestamp": "1"},
            "startingOffsetsByTimestamp and since say the same",
        ),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 1}}', "until": "2026-03-01"}, "say the same"),
        ({"includeHeaders": "false"}, "name the columns without them by columns"),
        ({"maxTriggerDelay": "1m"}, "of no use without minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "5"}, "must be like 15m, 30s"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be more than"),
        ({"kafka.bootstrap.servers": "x:9092"}, "Kafka's source: the option config names"),
        ({"groupIdPrefix": "x"}, "Kafka's source: leave it out: the checkpoint keeps"),
        ({"maxRecordsPerPartition": "9"}, "Kafka's source: use split_rows"),
        ({"selection": "x"}, "unknown options: selection"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: dict[str, str], wrong: str) -> None:
    from sparkjobs.source.request import SourceRequest

    with pytest.raises(BadOption, match=wrong):
        SourceRequest.of(options)
