"""What EMS writes to the log: formats, failures with their next attempt, floods, messages."""

from __future__ import annotations

import io
import json
import logging
import re
from datetime import timedelta

import pytest

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.consume.outcome.flood import PER_SECOND, Flood, flood
from streams.consume.outcome.lines import Lines
from streams.logs import ConsoleFormatter, JsonFormatter, event
from streams.management.console import console
from streams.models import RetryMessage
from streams.testing import advance, drain

HANDLING = "streams.handling"
database = pytest.mark.django_db(transaction=True)
pytestmark = pytest.mark.usefixtures("clean_registry")


@pytest.fixture(autouse=True)
def no_flood():
    flood.say_withheld(at_once=True)


def record(level=logging.WARNING, text="mail failed", error=None, **values):
    made = logging.LogRecord(HANDLING, level, "x.py", 1, text, (), None)
    made.__dict__.update(event("handler.failed", **values))
    if error:
        made.exc_info = (type(error), error, None)
    return made


def failures(caplog):
    return [r for r in caplog.records if getattr(r, "ems_event", "") == "handler.failed"]


def withheld(caplog):
    return [
        (r.levelno, r.ems_withheld, r.ems_dead)
        for r in caplog.records
        if getattr(r, "ems_event", "") == "failures.withheld"
    ]


# -- formats --


def test_json_has_the_event_its_values_and_the_time_in_utc():
    made = record(topic="orders", retry_in=1.5, error=ValueError("no"))
    made.created = 0.25
    made.otelTraceID = "abc"
    row = json.loads(JsonFormatter().format(made))
    assert row.pop("exception").endswith("ValueError: no")
    assert row == {
        "time": "1970-01-01T00:00:00.250+00:00",
        "level": "WARNING",
        "logger": HANDLING,
        "message": "mail failed",
        "ems_event": "handler.failed",
        "ems_topic": "orders",
        "ems_retry_in": 1.5,
        "trace_id": "abc",
    }


def test_json_stays_one_line_whatever_a_value_is():
    line = JsonFormatter().format(record(text="a\nb", key=object(), error=ValueError("c\nd")))
    assert "\n" not in line
    assert json.loads(line)["message"] == "a\nb"


def test_a_line_of_the_terminal_has_time_and_level_and_colours_only_when_told():
    plain = ConsoleFormatter().format(record())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING mail failed", plain)
    assert ConsoleFormatter(colored=True).format(record()) != plain
    assert "\x1b[" in ConsoleFormatter(colored=True).format(record(logging.ERROR))
    assert "\x1b[" not in ConsoleFormatter(colored=True).format(record(logging.INFO))


# -- the terminal of a command --


def no_handlers(monkeypatch):
    """Take all handlers away. In the test itself: pytest adds its own ones just before it."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


@pytest.mark.parametrize(
    ("verbosity", "levels"), [(0, "WE"), (1, "IWE"), (2, "mIWE"), (3, "dmIWE")]
)
def test_the_verbosity_chooses_what_the_terminal_shows(monkeypatch, verbosity, levels):
    no_handlers(monkeypatch)
    stream = io.StringIO()
    with console(stream, "text", verbosity=verbosity, colored=False) as shown:
        assert shown
        logging.getLogger("streams.worker").debug("d")
        logging.getLogger("streams.messages").debug("m")
        logging.getLogger("streams.worker").info("I")
        logging.getLogger("streams.worker").warning("W")
        logging.getLogger("streams.worker").error("E")
    assert "".join(line.split()[-1] for line in stream.getvalue().splitlines()) == levels
    assert not logging.getLogger("streams").handlers  # left as it was
    assert not logging.getLogger("streams").level


@pytest.mark.parametrize("name", ["", "streams", "streams.handling"])
def test_where_the_project_has_a_handler_nothing_is_added(monkeypatch, name):
    no_handlers(monkeypatch)
    own, stream = io.StringIO(), io.StringIO()
    monkeypatch.setattr(logging.getLogger(name), "handlers", [logging.StreamHandler(own)])
    with console(stream, "json", verbosity=1, colored=None) as shown:
        assert not shown
        logging.getLogger("streams.handling").warning("once")
        assert not logging.getLogger("streams").level
    assert (own.getvalue(), stream.getvalue()) == ("once\n", "")


def test_a_level_of_the_project_for_messages_stays(monkeypatch):
    no_handlers(monkeypatch)
    monkeypatch.setattr(logging.getLogger("streams.messages"), "level", logging.ERROR)
    with console(io.StringIO(), "text", verbosity=2, colored=False):
        assert logging.getLogger("streams.messages").level == logging.ERROR


@pytest.mark.parametrize(("variable", "colored"), [("", True), ("1", False)])
def test_no_color_is_obeyed(monkeypatch, variable, colored):
    no_handlers(monkeypatch)
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setattr("streams.management.console.supports_color", lambda: True)
    stream = io.StringIO()
    with console(stream, "text", verbosity=1, colored=None):
        logging.getLogger("streams.worker").warning("W")
    assert ("\x1b[" in stream.getvalue()) is colored


# -- failures --


@database
def test_a_failure_has_its_traceback_and_says_when_the_next_attempt_is(caplog):
    @consumer("orders", group="mail", retry=[timedelta(minutes=10)])
    def handle(message):
        raise ValueError("no")

    send("orders", 1)
    drain()
    (made,) = failures(caplog)
    assert re.search(r"failed on orders/0@0, attempt 1: ValueError: no; ", made.getMessage())
    assert re.search(r"next attempt in (8|9|10|11|12) min$", made.getMessage())
    assert made.exc_info
    assert 480 <= made.ems_retry_in <= 720


@database
@pytest.mark.parametrize(
    ("delay", "text"), [(0.1, "now"), (90, "in 90 s"), (600, "in 10 min"), (7200, "in 2 h")]
)
def test_a_retry_that_was_asked_for_is_one_line_and_says_when_it_comes(caplog, delay, text):
    @consumer("orders", group="mail", max_retries=1)
    def handle(message):
        raise Retry("the shop is closed", delay=delay)

    send("orders", 1)
    drain()
    made = failures(caplog)[0]
    assert made.exc_info is None
    assert "asks to retry orders/0@0, attempt 1: the shop is closed" in made.getMessage()
    assert made.getMessage().endswith(f"next attempt {text}")


@database
@pytest.mark.parametrize("error", [Reject("never"), ValueError("no")])
def test_a_death_says_so(caplog, error):
    @consumer("orders", group="mail", max_retries=0)
    def handle(message):
        raise error

    send("orders", 1)
    drain()
    (made,) = [r for r in caplog.records if getattr(r, "ems_event", "") == "message.dead"]
    verb = "rejected" if isinstance(error, Reject) else "gave up on"
    assert f"{verb} orders/0@0 after attempt 1: " in made.getMessage()
    assert made.getMessage().endswith("it is a dead letter now")
    assert bool(made.exc_info) is isinstance(error, ValueError)


# -- floods --


@database
def test_a_flood_of_failures_is_ten_records_and_a_count(caplog):
    for group in ("mail", "board"):

        @consumer("orders", group=group, batch=100)
        def handle(messages):
            raise ValueError("no")

    send_many([Outgoing("orders", n) for n in range(50)])
    drain()
    flood.say_withheld(at_once=True)
    for group in ("mail", "board"):
        of_group = [r for r in caplog.records if getattr(r, "ems_group", "") == group]
        assert sum(r.ems_event == "handler.failed" for r in of_group) == PER_SECOND
    assert withheld(caplog) == [(logging.WARNING, 40, 0)] * 2
    assert RetryMessage.objects.count() == 100


def test_dead_letters_among_what_was_withheld_are_an_error(caplog):
    one = Flood()
    admitted = [one.admits("orders", "mail", dead=n > 20) for n in range(25)]
    assert admitted == [True] * PER_SECOND + [False] * 15
    one.say_withheld(at_once=True)
    assert withheld(caplog) == [(logging.ERROR, 15, 4)]
    one.say_withheld(at_once=True)
    assert len(withheld(caplog)) == 1


def test_the_next_second_begins_with_the_count_of_the_last_one(caplog, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("streams.consume.outcome.flood.time.monotonic", lambda: now[0])
    one = Flood()
    for _ in range(12):
        one.admits("orders", "mail")
    one.say_withheld()
    assert withheld(caplog) == []  # the second has not ended
    now[0] = 101.0
    assert one.admits("orders", "mail")
    assert withheld(caplog) == [(logging.WARNING, 2, 0)]


# -- a line for each message --


def lines(caplog):
    return [
        (r.ems_group, r.ems_offset, r.ems_attempt, r.ems_outcome)
        for r in caplog.records
        if getattr(r, "ems_event", "") == "message.handled"
    ]


def test_without_a_reader_no_lines_are_made():
    assert Lines.wanted() is None


@database
@pytest.mark.parametrize("atomic", [False, True])
def test_each_message_has_a_line_with_its_outcome(caplog, atomic):
    caplog.set_level(logging.DEBUG, "streams.messages")

    @consumer("orders", group="mail", atomic=atomic, max_retries=1, retry=[1.0])
    def handle(message):
        if message.body:
            raise ValueError("no")

    send_many([Outgoing("orders", n, key="k") for n in range(2)])
    drain()
    advance(timedelta(minutes=1))
    drain()
    assert lines(caplog) == [
        ("mail", 0, 1, "done"),
        ("mail", 1, 1, "retry"),
        ("mail", 1, 2, "dead"),
    ]
    text = next(r.getMessage() for r in caplog.records if hasattr(r, "ems_outcome"))
    assert re.fullmatch(r"mail orders/0@0 key 'k', attempt 1: done in [\d.]+ ms", text)


@database
@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_each_message_of_a_batch_has_a_line(caplog, mode):
    caplog.set_level(logging.DEBUG, "streams.messages")

    @consumer("orders", group="mail", batch=3, mode=mode)
    def handle(messages):
        return {messages[1]: ValueError("no")} if len(messages) > 1 else None

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    failed = "retry" if mode == "cluster" else "failed"
    assert [(offset, outcome) for _g, offset, _a, outcome in lines(caplog)] == [
        (0, "done"),
        (1, failed),
        (2, "done"),
    ]
    text = next(r.getMessage() for r in caplog.records if hasattr(r, "ems_outcome"))
    assert text.endswith("ms (a call of 3)")
