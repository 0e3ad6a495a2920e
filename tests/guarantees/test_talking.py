"""What ``ems_consume`` says in a terminal. Real processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streams import Outgoing, send, send_many
from streams.models import ConsumerGroup
from tests.processes import Spawn, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

CONSUMER = """
from streams import Reject, Retry, consumer
from django.core.management import call_command, execute_from_command_line

@consumer("orders", group="mail")
def mail(message):
    if message.body == "later":
        raise Retry("not yet", delay=600)
    if message.body == "never":
        raise Reject("no address")

"""
MANAGE = CONSUMER + (
    "import sys\nexecute_from_command_line("
    "['manage.py', 'ems_consume', '--start', 'earliest', *sys.argv[1:]])\n"
)
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INFO|WARNING|ERROR|DEBUG) +(.*)")


def said(text: str) -> list[tuple[str, str]]:
    """Return the level and the text of each line; every line must have both, and a time."""
    found = [LINE.fullmatch(line) for line in text.splitlines() if not line.startswith(" ")]
    assert all(found), text
    return [(match[1], match[2]) for match in found if match]


@pytest.fixture
def backlog() -> None:
    send_many([Outgoing("orders", body, key="k") for body in ("ok", "later", "never", "ok")])


@pytest.mark.usefixtures("backlog")
def test_it_says_where_its_groups_are_and_at_the_end_what_it_has_done(spawn: Spawn) -> None:
    text = spawn(MANAGE, "--drain").succeed()
    lines = said(text)
    assert "\x1b" not in text
    started = next(line for _level, line in lines if "mail on orders: " in line)
    assert re.search(r"5 threads, at 0@0, 0 behind$", started)  # the inbox has no offsets yet
    ended = "mail on orders: 2 handled, 2 failed (1 dead), 0 missing, 0 without its tags"
    assert ("INFO", ended) in lines
    assert any(
        level == "WARNING" and "orders/0@1, attempt 1: not yet; next attempt in 10 min" in line
        for level, line in lines
    )
    assert any(level == "ERROR" and "it is a dead letter now" in line for level, line in lines)
    assert "Traceback" not in text
    assert lines[-1] == ("INFO", "Stopped.")

    ConsumerGroup.objects.update(paused=True)
    send("orders", "ok")
    lines = said(spawn(MANAGE, "--drain").succeed())
    assert any(line.endswith("at 0@4, 0 behind, paused") for _level, line in lines)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("backlog")
def test_with_verbosity_2_each_message_is_a_line(spawn: Spawn) -> None:
    lines = said(spawn(MANAGE, "--drain", "-v", "2").succeed())
    handled = [
        re.match(r"mail (\S+) key 'k', attempt 1: (\w+) in [\d.]+ ms$", line)
        for level, line in lines
        if level == "DEBUG"
    ]
    # Threads share the messages of a handler that nothing is known of.
    assert sorted(match.groups() if match else () for match in handled) == [
        ("orders/0@0", "done"),
        ("orders/0@1", "retry"),
        ("orders/0@2", "dead"),
        ("orders/0@3", "done"),
    ]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("backlog")
def test_colours_are_for_who_asks(spawn: Spawn) -> None:
    assert "\x1b[" in spawn(MANAGE, "--drain", "--force-color").succeed()


@pytest.mark.usefixtures("backlog")
def test_json_is_one_object_a_line(spawn: Spawn) -> None:
    text = spawn(MANAGE, "--drain", "--log", "json").succeed()
    rows = [json.loads(line) for line in text.splitlines()]
    events = [row["ems_event"] for row in rows]
    assert events[:2] == ["group.started", "consumer.started"]
    assert events[-2:] == ["group.counted", "consumer.stopped"]
    counted = rows[-2]
    assert (counted["ems_handled"], counted["ems_failed"], counted["ems_dead"]) == (4, 2, 1)


def test_once_a_minute_it_says_how_each_group_does(spawn: Spawn) -> None:
    quick = (
        "from streams.process import progress\nprogress.EVERY_SECONDS = 0.2\n"
        "from streams.process import supervisor\nfrom datetime import timedelta\n"
        "supervisor.SWEEP_EVERY = timedelta(seconds=0.1)\n"
    )
    child = spawn(quick + MANAGE)
    child.expect("database connections")
    send_many([Outgoing("orders", body) for body in ("ok", "later", "never")])
    child.expect("2 failed, 1 dead, 0 behind")
    child.terminate()
    child.succeed()


OWN = """\
from tests.settings import *
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"own": {"format": "own %(levelname)s %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"handlers": ["own"], "level": "LEVEL"},
}
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("backlog")
@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_the_logging_of_the_project_writes_each_line_once(
    spawn: Spawn, tmp_path: Path, level: str
) -> None:
    (tmp_path / "own_settings.py").write_text(OWN.replace("LEVEL", level))
    env = {"DJANGO_SETTINGS_MODULE": "own_settings", "PYTHONPATH": f"{tmp_path}:."}
    text = spawn(MANAGE, "--drain", env=env).succeed()
    assert text.count("orders/0@1") == 1
    assert text.count("database connections") == (level == "INFO")
    others = [line for line in text.splitlines() if not line.startswith("own ")]
    expected = [] if level == "INFO" else ["LOGGING shows only warnings of EMS"]
    assert [line.split(":")[0] for line in others] == expected


MANAGE_FILE = """\
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
GOOD = """\
from streams import consumer
consumer("orders", group="mail")(lambda message: print(f"got {message.body}", flush=True))
"""
RELOAD = """\
import os, sys
os.execv(sys.executable, [sys.executable, sys.argv[1], "ems_consume", "--reload"])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("broken", ["consumers.py", "apps.py"])
def test_reload_outlives_an_error_of_syntax(spawn: Spawn, tmp_path: Path, broken: str) -> None:
    """At the start for consumers.py; for any file of the project while it runs."""
    app = tmp_path / "reloaded"
    app.mkdir()
    (app / "__init__.py").write_text("")
    apps = 'from django.apps import AppConfig\nclass Config(AppConfig):\n    name = "reloaded"\n'
    (app / "apps.py").write_text(apps)
    consumers = app / "consumers.py"
    consumers.write_text("def broken(:\n")
    (tmp_path / "manage.py").write_text(MANAGE_FILE)
    settings = "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded']\n"
    (tmp_path / "reload_settings.py").write_text(settings)
    env = {"DJANGO_SETTINGS_MODULE": "reload_settings", "PYTHONPATH": f"{tmp_path}:."}
    child = spawn(RELOAD, tmp_path / "manage.py", env={**env, "PYTHONDONTWRITEBYTECODE": "1"})
    child.expect("waiting for a change")
    consumers.write_text(GOOD)
    child.expect("database connections")
    send("orders", 1)
    child.expect("got 1")
    good = (app / broken).read_text()

    def broken_again() -> bool:
        # Django's reloader notices what is changed after its first look at the files.
        (app / broken).write_text("def broken(:\n")
        return child.text().count("SyntaxError: ") > 1

    wait_for(broken_again, child.text)
    child.expect("waiting for a change")
    (app / broken).write_text(good + "# repaired\n")
    child.expect("database connections")
    send("orders", 2)
    child.expect("got 2")
