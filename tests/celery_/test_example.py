"""Celery's own example of a Django project runs on EMS: nothing is changed but the broker's URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.celery_.peers import SUITES, unpacked
from tests.processes import Child, started, wait_for

pytestmark = [pytest.mark.exhaustive, pytest.mark.any_database, pytest.mark.timeout(600)]

# What its page says to change: the broker, whose tables are those of an app. Results are in files,
# since the example keeps them with SQLAlchemy, which is not installed here.
CHANGES = {
    "'amqp://guest:guest@localhost'": "'ems://'",
    "    'demoapp',\n": "    'demoapp',\n    'streams',\n",
    "'db+sqlite:///results.sqlite'": "'file://' + os.environ['RESULTS']",
}
# As its README has it, and the other tasks.
SHELL = """\
from django.db import transaction
from demoapp.models import Widget
from demoapp.tasks import add, count_widgets, error_task, mul, rename_widget, xsum
assert add.delay_on_commit(2, 3) is None
assert add.delay(2, 3).get(timeout=200) == 5
assert mul.delay(2, 3).get(timeout=200) == 6
assert xsum.delay([1, 2, 3]).get(timeout=200) == 6
with transaction.atomic():
    widget = Widget.objects.create(name="old")
    renamed = rename_widget.delay(widget.id, "new")
renamed.get(timeout=200)
widget.refresh_from_db()
assert widget.name == "new"
assert count_widgets.delay().get(timeout=200) == 1
failing = error_task.delay()
print("all is well", failing.id)
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return the folder of the example, with what is changed."""
    unpacked(replace(SUITES["celery"], files={}), tmp_path)
    folder = tmp_path / SUITES["celery"].sdist.name / "examples" / "django"
    settings = folder / "proj" / "settings.py"
    text = settings.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    settings.write_text(text)
    (tmp_path / "results").mkdir()
    return folder


@pytest.fixture
def run(example: Path, tmp_path: Path) -> Iterator[Callable[..., Child]]:
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    env |= {"RESULTS": str(tmp_path / "results"), "C_FORCE_ROOT": "1"}
    env["PYTHONPATH"] = str(example)
    children: list[Child] = []

    def start(*words: str) -> Child:
        children.append(Child(started([sys.executable, *words], env)))
        return children[-1]

    yield start
    for child in children:
        child.close()


def test_celerys_own_example_runs_unchanged(example: Path, run: Callable[..., Child]) -> None:
    manage = str(example / "manage.py")
    run(manage, "migrate").succeed()
    worker = run("-m", "celery", "-A", "proj", "worker", "-l", "INFO", "-c", "2")
    worker.expect("ready")
    assert "transport:   ems://" in worker.text()
    shell = run(manage, "shell", "-c", SHELL)
    assert "all is well" in shell.succeed(300), worker.text()
    # It comes again after ten minutes, which EMS keeps.
    wait_for(lambda: "Retry in 600s" in worker.text(), worker.text)
    worker.terminate()
    worker.succeed()
