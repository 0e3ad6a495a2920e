"""What docs/about/architecture.md says and no other test shows."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.apps import apps

from streams import consumer, send
from streams.consume.outcome.settle import release
from streams.consume.registry import find
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.log.sequencer import sequence
from streams.models import RetryMessage, UtcNow
from streams.steps.sweep import sweep
from tests.docs.documents import DOCS, table
from tests.processes import Spawn

TIMEOUT = timedelta(seconds=60)


def test_every_table_is_documented() -> None:
    models = {m._meta.db_table: m.__name__ for m in apps.get_app_config("ems").get_models()}
    assert table(DOCS / "about" / "architecture.md", "The tables") == models


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("given_back", ["released", "its process died"])
def test_a_message_that_must_run_alone_still_must_when_it_was_given_back(given_back: str) -> None:
    consumer("orders", group="mail")(print)
    registration = find("orders", "mail")
    assert registration
    # A client without a lease: its process is dead.
    dead = Claimer(subscribe(registration, "default"), "dead", "thread", "default")
    send("orders", 1)
    sequence("default")
    assert dead.claim(1, TIMEOUT)
    assert sweep("default") == 1
    RetryMessage.objects.update(due_at=UtcNow())
    second = dead.claim_retry(TIMEOUT)
    assert second
    second[0].start(TIMEOUT)
    assert sweep("default") == 1
    before = RetryMessage.objects.get()
    assert (before.alone, before.attempt) == (True, 3)
    RetryMessage.objects.update(due_at=UtcNow())
    claimed = dead.claim_retry(TIMEOUT)
    assert claimed
    if given_back == "released":
        release(claimed[0])
    else:
        assert sweep("default") == 1
    after = RetryMessage.objects.get()
    assert (after.delivery, after.alone, after.attempt) == (None, True, 3)
    assert after.last_error == before.last_error != ""


CONSUME = """\
from streams import consumer
consumer("orders", group="mail")(lambda message: print("got", message.body, flush=True))
from django.core.management import call_command
call_command("ems_consume", "--reload")
"""


@pytest.mark.slow
@pytest.mark.every_django
def test_reload_consumes_until_the_code_changes(spawn: Spawn, tmp_path: Path) -> None:
    # The reloader starts the program anew by its name, so it must have one.
    program = tmp_path / "consume.py"
    program.write_text("import django\ndjango.setup()\n" + CONSUME)
    child = spawn(f"import os, sys; os.execv(sys.executable, [sys.executable, {str(program)!r}])")
    child.expect("connections")
    send("orders", 7)
    assert re.search("got 7", child.expect("got"))
