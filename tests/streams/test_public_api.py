"""What hosts import: the names, the signatures, the types. A change here breaks somebody."""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import streams
from streams import Outgoing, ReceivedMessage, SendResult, testing

ROOT = Path(__file__).resolve().parents[2]


def test_the_public_names_are_these():
    assert streams.__all__ == [
        "Decision",
        "Exponential",
        "Outgoing",
        "Postpone",
        "Prepared",
        "PreparedMessage",
        "ReceivedMessage",
        "Reject",
        "Retry",
        "SendOutcomeUnknown",
        "SendResult",
        "StreamsError",
        "asend",
        "cancel",
        "checkback",
        "consumer",
        "prepare",
        "prepared",
        "relay",
        "send",
        "send_many",
    ]
    for name in streams.__all__:
        assert getattr(streams, name).__name__ == name
        assert getattr(streams, name).__doc__
    assert set(streams.__all__) <= set(dir(streams))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'streams' has no attribute 'sned'"):
        streams.sned  # noqa: B018 - the look-up is the test
    with pytest.raises(ImportError):
        from streams import sned  # noqa: F401


def parameters(function):
    return str(inspect.signature(function)).rpartition(" -> ")[0]


def test_the_signatures_are_these():
    assert parameters(streams.send) == (
        "(topic: 'str', body: 'Any' = None, *, key: 'str | int | UUID | None' = None,"
        " tag: 'str' = '', headers: 'Mapping[str, str] | None' = None,"
        " delay: 'timedelta | float | None' = None,"
        " deliver_at: 'datetime | None' = None, partition: 'int | None' = None,"
        " dedup_key: 'str | int | UUID | None' = None,"
        " dedup_window: 'timedelta | float | None' = None, using: 'str | None' = None)"
    )
    assert parameters(streams.send_many) == (
        "(messages: 'Iterable[Outgoing]', *, using: 'str | None' = None)"
    )
    assert inspect.iscoroutinefunction(streams.asend)
    assert list(inspect.signature(streams.prepare).parameters) == [
        *("topic", "body", "biz", "biz_key", "checker", "key", "tag", "headers"),
        *("partition", "context", "check_after", "using"),
    ]
    assert parameters(streams.checkback) == "(name: 'str')"
    names = list(inspect.signature(streams.consumer).parameters)
    assert names == [
        "topic",
        "group",
        "batch",
        "threads",
        "mode",
        "start",
        "ordered",
        "on_dead",
        "lanes",
        "atomic",
        "tags",
        "max_retries",
        "retry",
        "consume_timeout",
        "rate",
        "burst",
        "rate_key",
        "rehearsable",
        "body",
    ]


def test_asend_takes_what_send_takes():
    def of(function):
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.kind, one.default) for one in found]

    assert of(streams.asend) == of(streams.send)


def test_testing_offers_these():
    assert (
        parameters(testing.drain) == "(group: 'str | None' = None, *, using: 'str | None' = None)"
    )
    assert parameters(testing.advance) == "(by: 'timedelta', *, using: 'str | None' = None)"
    assert parameters(testing.sent) == (
        "(topic: 'str', *, using: 'str | None' = None, **filters: 'Any')"
    )


def test_an_outgoing_message_has_the_arguments_of_send():
    arguments = list(inspect.signature(streams.send).parameters)
    assert [field.name for field in dataclasses.fields(Outgoing)] == arguments[:-1]  # but using
    assert [field.name for field in dataclasses.fields(SendResult)] == [
        "message_id",
        "topic",
        "partition",
        "duplicate",
    ]


def received(**changes):
    values = {
        "message_id": 1,
        "topic": "orders",
        "group": "mail",
        "partition": 0,
        "offset": 7,
        "attempt": 1,
        "key": None,
        "tag": "",
        "headers": {},
        "size": 7,
        "producer": "host@1@MainThread",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "sequenced_at": None,
        "body_type": "json",
        "raw_body": b'{"n":1}',
    }
    return ReceivedMessage(**{**values, **changes})


def test_a_received_message_can_be_built_in_a_hosts_unit_test():
    message = received()
    assert message.body == {"n": 1}
    assert message.body is message.body  # decoded once
    assert {message: "failed"}[received()] == "failed"  # batch handlers use it as a key
    assert message != received(offset=8)
    assert "raw_body" not in repr(message)
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.offset = 8


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_importing_works_before_the_apps_are_ready():
    """As in a host's models.py, which Django imports while it loads the apps."""
    code = """
from django.apps import apps
from streams import Outgoing, ReceivedMessage, Reject, Retry, SendResult, StreamsError
from streams import asend, consumer, send, send_many

@consumer("orders", group="mail")
def handle(message):
    pass

assert not apps.ready
import sys
assert not any(name.startswith("streams.models") for name in sys.modules)
import django
django.setup()
from streams.models import Message
print("fine")
"""
    result = run_python(code, DJANGO_SETTINGS_MODULE="tests.settings")
    assert result.stdout == "fine\n", result.stderr


def test_importing_the_package_alone_needs_no_django_settings():
    result = run_python("import streams; print(streams.__all__)", DJANGO_SETTINGS_MODULE="")
    assert "'send'" in result.stdout, result.stderr


def test_the_package_says_that_it_is_typed():
    assert (Path(streams.__file__).parent / "py.typed").exists()


GOOD = """
from collections.abc import Mapping, Sequence
from streams import Outgoing, ReceivedMessage, Reject, SendResult, asend, consumer, send, send_many


@consumer("orders", group="one")
def one(message: ReceivedMessage) -> None:
    print(message.body["n"], message.headers["a"].upper())


@consumer("orders", group="one-with-options", threads=2, start="latest", atomic=True)
async def waits(message: ReceivedMessage) -> None:
    await asend("seen", message.body, key=message.offset)


@consumer("orders", group="many", batch=100, max_retries=3, consume_timeout=2.5)
def many(messages: Sequence[ReceivedMessage]) -> Mapping[ReceivedMessage, BaseException] | None:
    return {message: Reject("bad") for message in messages}


@consumer("orders", group="many-too", batch=1)
async def returns_nothing(messages: Sequence[ReceivedMessage]) -> None: ...


result: SendResult = send("orders", {"n": 1}, key="k", delay=1.5)
results: list[SendResult] = send_many(Outgoing("orders", n) for n in range(3))
number: int = waits  # E: the decorator must keep the type


async def later() -> SendResult:
    return await asend("orders", b"1")
"""

BAD = {
    "a batch handler that takes one message": """
@consumer("orders", group="g", batch=10)
def handle(message: ReceivedMessage) -> None: ...
""",
    "a plain handler that takes a sequence": """
@consumer("orders", group="g")
def handle(messages: Sequence[ReceivedMessage]) -> None: ...
""",
    "a batch handler that returns a count": """
@consumer("orders", group="g", batch=10)
def handle(messages: Sequence[ReceivedMessage]) -> int: ...
""",
    "a plain handler that returns a bool": """
@consumer("orders", group="g")
def handle(message: ReceivedMessage) -> bool: ...
""",
    "an async handler that returns a bool": """
@consumer("orders", group="g")
async def handle(message: ReceivedMessage) -> bool: ...
""",
    "a handler without arguments": """
@consumer("orders", group="g")
def handle() -> None: ...
""",
    "no group": """
@consumer("orders")
def handle(message: ReceivedMessage) -> None: ...
""",
    "a start that does not exist": """
@consumer("orders", group="g", start="newest")
def handle(message: ReceivedMessage) -> None: ...
""",
    "a key that is a float": """
send("orders", key=7.5)
""",
    "headers of numbers": """
send("orders", headers={"a": 1})
""",
    "send_many of dicts": """
send_many([{"topic": "orders"}])
""",
    "an unknown argument of asend": """
async def later() -> None:
    await asend("orders", kye="k")
""",
}

PREAMBLE = """
from collections.abc import Sequence
from streams import Outgoing, ReceivedMessage, asend, consumer, send, send_many
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_mypy_strict_takes_right_handlers_and_refuses_wrong_ones(tmp_path):
    pytest.importorskip("mypy")
    files = {"good.py": GOOD}
    for number, code in enumerate(BAD.values()):
        files[f"bad_{number}.py"] = PREAMBLE + code
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    # No plugin and no configuration of ours: a host has neither.
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=mypy.ini", *files],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    complaints = [line for line in result.stdout.splitlines() if ": error:" in line]
    good = [line for line in complaints if line.startswith("good.py")]
    (line,) = [n for n, text in enumerate(GOOD.splitlines(), 1) if "# E:" in text]
    assert [complaint.split(":")[1] for complaint in good] == [str(line)], result.stdout
    for number, what in enumerate(BAD):
        assert any(line.startswith(f"bad_{number}.py") for line in complaints), what
    assert all(line.startswith(("good.py", "bad_")) for line in complaints), result.stdout
