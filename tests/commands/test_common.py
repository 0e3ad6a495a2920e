"""What holds for every command: --json, --database, and errors on one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from django.core.management import (
    CommandError,
    call_command,
    execute_from_command_line,
    get_commands,
    load_command_class,
)
from django.db import connection

from streams import consumer, send
from streams.management.base import StreamsCommand, line, printable
from streams.models import Access, ConsumerGroup, Message, Topic
from streams.operate import topic_deletion
from streams.testing import drain
from tests.processes import Spawn

COMMANDS = (
    "ems_topics",
    "ems_groups",
    "ems_messages",
    "ems_dead",
    "ems_redrives",
    "ems_send",
    "ems_doctor",
    "ems_sync_schedules",
)
# Every verb, with arguments for a topic "orders" of one message, which has a group "mail".
VERBS = (
    ("ems_topics", "list"),
    ("ems_topics", "index", "orders"),
    ("ems_groups", "list"),
    ("ems_groups", "pause", "mail"),
    ("ems_groups", "resume", "mail"),
    ("ems_groups", "delete", "mail", "--dry-run"),
    ("ems_messages", "list", "orders"),
    ("ems_messages", "show", "MESSAGE"),
    ("ems_messages", "trace", "MESSAGE"),
    ("ems_dead", "list"),
    ("ems_dead", "redrive", "--all", "--dry-run"),
    ("ems_dead", "discard", "--all", "--dry-run"),
    ("ems_send", "orders", "1"),
)
DESTROYING = (("ems_groups", "delete"), ("ems_dead", "redrive"), ("ems_dead", "discard"))


def test_every_command_is_one_of_these() -> None:
    for name in COMMANDS:
        assert isinstance(load_command_class("streams", name), StreamsCommand)


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_takes_json_and_another_database(
    parsed: Callable[..., Any], verb: tuple[str, ...]
) -> None:
    send("orders", 1, using="other")
    topic = Topic.objects.using("other").get()
    ConsumerGroup.objects.using("other").create(topic=topic, name="mail")
    message = Message.objects.using("other").get()
    words = [str(message.pk) if word == "MESSAGE" else word for word in verb]
    assert parsed(*words, "--database", "other") is not None
    assert not Message.objects.exists()
    if set(verb) & {"mail", "MESSAGE"} or verb[1:] == ("list", "orders"):
        with pytest.raises(CommandError, match="There is no"):  # on the default alias
            parsed(*words)


def every_verb() -> list[tuple[str, ...]]:
    """Each command with each of its verbs, if it has any."""
    found: list[tuple[str, ...]] = []
    for name, app in get_commands().items():
        if app in ("streams", "monitoring"):
            verbs = getattr(load_command_class(str(app), name), "verbs", None) or [None]
            found += [(name, verb) if verb else (name,) for verb in verbs]
    return found


@pytest.mark.parametrize("words", every_verb(), ids=" ".join)
def test_every_verb_explains_itself(words: tuple[str, ...], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", *words, "--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out


@pytest.mark.django_db
@pytest.mark.parametrize("option", [["-v", "2"], ["--traceback"], ["--no-color"]], ids=str)
def test_djangos_own_options_work_after_a_verb(option: list[str], capsys: Any) -> None:
    call_command("ems_topics", "list", *option)
    assert "topic" in capsys.readouterr().out


PIPED = """
import os
from django.core.management import execute_from_command_line
reader, writer = os.pipe()
"""
SEEN_ENOUGH = """
os.close(reader)
os.dup2(writer, 1)
execute_from_command_line(["manage.py", "ems_topics", "list"])
"""


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(spawn: Spawn) -> None:
    Topic.objects.create(name="orders")
    assert spawn(PIPED + SEEN_ENOUGH).succeed() == ""


FROM_A_PIPE = """
os.write(writer, b'{"n": 1}')
os.close(writer)
os.dup2(reader, 0)
execute_from_command_line(["manage.py", "ems_send", "orders"])
"""


@pytest.mark.django_db(transaction=True)
def test_what_is_piped_into_a_send_is_its_body(spawn: Spawn) -> None:
    spawn(PIPED + FROM_A_PIPE).succeed()
    assert bytes(Message.objects.get().body) == b'{"n":1}'


@pytest.mark.parametrize("verb", DESTROYING, ids=" ".join)
def test_what_destroys_has_a_dry_run(verb: tuple[str, str]) -> None:
    parser = load_command_class("streams", verb[0]).create_parser("manage.py", verb[0])
    assert parser.parse_args([verb[1], "1", "--dry-run"]).dry_run


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("verb", [("ems_topics", "list"), ("ems_consume",)], ids=" ".join)
def test_an_unknown_alias_is_one_line(verb: tuple[str, ...]) -> None:
    consumer("orders", group="mail")(print)
    with pytest.raises(CommandError, match="There is no database alias 'nowhere'"):
        call_command(*verb, "--database", "nowhere")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_progress_is_for_who_looks_on_and_never_in_the_output() -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1)
    drain()
    for stderr, looks_on in ((Terminal(), True), (StringIO(), False)):
        out = StringIO()
        with suppress(SystemExit):  # nobody sequences
            call_command("ems_doctor", "--audit", stdout=out, stderr=stderr)
        assert ("orders/0: 1 / 1" in stderr.getvalue()) == looks_on
        assert stderr.getvalue().endswith("\r\x1b[K") == looks_on  # and taken away
        assert "orders/0: 1 / 1" not in out.getvalue()


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    "verb", [("ems_topics", "list"), ("ems_send", "orders", "1")], ids=" ".join
)
def test_a_database_that_does_not_answer_is_one_line(verb: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="The database says"):
        call_command(*verb)


@pytest.mark.django_db(transaction=True)
def test_missing_tables_are_one_line() -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(Topic, "ems_topic", "ems_topic_away")
    try:
        with pytest.raises(CommandError, match="migrate --database default"):
            call_command("ems_topics", "list")
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Topic, "ems_topic_away", "ems_topic")


MOST = 2**63 - 1
DEEP = "[" * 100_000
# What a person can type, and what the one line says.
MISTYPED = (
    (("ems_dead", "list", "--limit", str(MOST + 1)), f"from 1 to {MOST}"),
    (("ems_dead", "export", "--limit", "9" * 5000), f"from 1 to {MOST}"),
    (("ems_dead", "redrive", "1", str(2**64)), f"from 1 to {MOST}"),
    (("ems_dead", "discard", str(2**64)), f"from 1 to {MOST}"),
    (("ems_dead", "show", str(2**64)), f"from 1 to {MOST}"),
    (("ems_messages", "list", "orders", "--limit", str(2**64)), f"from 1 to {MOST}"),
    (("ems_messages", "cancel", str(2**64)), f"from 1 to {MOST}"),
    (("ems_messages", "show", str(2**64)), f"from 1 to {MOST}"),
    (("ems_messages", "show", "9" * 5000), f"from 1 to {MOST}"),
    (("ems_messages", "trace", f"orders/0@{2**64}"), "There is no message"),
    (("ems_messages", "trace", f"orders/{2**64}@0"), "There is no message"),
    (("ems_groups", "list", "--topic", "\udcff"), "not UTF-8"),
    (("ems_groups", "replay", "mail", "--message", str(2**64)), "There is no message"),
    (("ems_messages", "list", "or\udcff"), "not UTF-8"),
    (("ems_send", "orders", "1", "--header", "a=\udcff"), "not UTF-8"),
    (("ems_send", "orders", DEEP), "not JSON"),
    (("ems_send", "orders", DEEP + "]" * len(DEEP)), "not JSON"),
)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "said"), MISTYPED, ids=[f"{n} {words[0]}" for n, (words, _s) in enumerate(MISTYPED)]
)
def test_what_is_mistyped_is_one_line(words: tuple[str, ...], said: str) -> None:
    send("orders", 1)
    topic = Topic.objects.get()
    ConsumerGroup.objects.create(topic=topic, name="mail")
    with pytest.raises(CommandError, match=re.escape(said)) as raised:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    assert "\n" not in str(raised.value)
    str(raised.value).encode()
    assert Message.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, MOST])
def test_the_highest_limit_is_one(parsed: Callable[..., Any], limit: int) -> None:
    send("orders", 1)
    ConsumerGroup.objects.create(topic=Topic.objects.get(), name="mail")
    assert len(parsed("ems_messages", "list", "orders", "--limit", str(limit))) == 1
    assert parsed("ems_dead", "list", "--limit", str(limit)) == []
    redriven = parsed("ems_dead", "redrive", "--all", "--limit", str(limit))
    assert redriven["redriven"] == 0


@pytest.mark.django_db
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # as the locale has it
@pytest.mark.parametrize("words", [(), ("--text",)], ids=["json", "text"])
def test_input_that_is_not_utf8_is_one_line(
    monkeypatch: pytest.MonkeyPatch, errors: str, words: tuple[str, ...]
) -> None:
    given = TextIOWrapper(BytesIO(b'"\xff"'), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", given)
    with pytest.raises(CommandError, match="not UTF-8"):
        call_command("ems_send", "orders", "-", *words)
    assert not Message.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_missing_tables_of_beat_are_one_line() -> None:
    beat = pytest.importorskip("django_celery_beat.models", exc_type=ImportError)
    name = beat.PeriodicTask._meta.db_table
    with connection.schema_editor() as editor:
        editor.alter_db_table(beat.PeriodicTask, name, "beat_away")
    try:
        with pytest.raises(CommandError, match=rf"{name}.*manage.py migrate"):
            call_command("ems_sync_schedules")
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(beat.PeriodicTask, "beat_away", name)


@pytest.mark.django_db
def test_a_topic_that_somebody_else_deletes_meanwhile_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Topic.objects.create(name="orders", access=Access.READ_ONLY)

    def wait(self: topic_deletion.TopicDeletion) -> None:
        topic_deletion.TopicDeletion(self.topic, "default").finish()

    monkeypatch.setattr(topic_deletion.TopicDeletion, "wait", wait)
    with pytest.raises(CommandError, match="There is no topic orders"):
        call_command("ems_topics", "delete", "orders", stdout=StringIO())


@pytest.mark.parametrize("name", [name for name in get_commands() if name.startswith("ems_")])
def test_the_checks_of_a_command_connect_to_no_database(name: str) -> None:
    command = load_command_class(str(get_commands()[name]), name)
    assert command.get_check_kwargs({})["databases"] == []


CHECKED = """
from django.core.checks import register
from django.core.management import execute_from_command_line
from streams import consumer

@register()
def check(app_configs, databases, **kwargs):
    print("checked on", databases, flush=True)
    return []

consumer("orders", group="mail")(print)
execute_from_command_line(["manage.py", "ems_consume", "--drain", *sys.argv[1:]])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone", marks=pytest.mark.exhaustive),
        pytest.param(("--processes", "1"), id="forked"),
    ],
)
def test_nor_do_those_of_consumers(spawn: Spawn, options: tuple[str, ...]) -> None:
    assert "checked on []\n" in spawn(CHECKED, *options).succeed()


@pytest.mark.slow
def test_as_a_process_an_error_is_one_line_and_exit_status_1(spawn: Spawn) -> None:
    child = spawn.command("ems_groups", "pause", "nobody")
    assert child.wait() == 1
    assert child.text().strip() == "CommandError: There is no group nobody."


WITHOUT_ADMIN = """\
from tests.settings import *
INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "django.contrib.admin"]
ROOT_URLCONF = "plain_settings"
urlpatterns = []
"""


@pytest.mark.slow
def test_the_commands_need_no_admin(
    spawn: Spawn, tmp_path: Path, process_env: dict[str, str]
) -> None:
    (tmp_path / "plain_settings.py").write_text(WITHOUT_ADMIN)
    path = os.pathsep.join([str(tmp_path), process_env["PYTHONPATH"]])
    env = {"DJANGO_SETTINGS_MODULE": "plain_settings", "PYTHONPATH": path}
    message = str(send("orders", "hello").message_id)
    assert "hello" in spawn.command("ems_messages", "show", message, env=env).succeed()
    assert "died_at" in spawn.command("ems_dead", "list", env=env).succeed()


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    assert line("a\x1b[2Jb\nc\x07") == "a�[2Jb c�"
    assert printable("a\n\tb\x9bc") == "a\n\tb�c"
    assert line(None) == "–"
    assert line(0) == "0"
