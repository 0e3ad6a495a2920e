"""docs/guides/operations.md knows every time-driven step and every logger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pytest_django import Settings

from streams import send
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, DeadMessage, Partition, RetryMessage, UtcNow
from streams.schedule import of_all_apps
from tests.docs.documents import DOCS, ROOT, table

OPERATIONS = DOCS / "guides" / "operations.md"


def test_every_time_driven_step_is_documented_with_its_period() -> None:
    expected = {name: f"{entry['schedule']:g} s" for name, entry in of_all_apps().items()}
    assert table(OPERATIONS, "Celery") == expected


def test_every_logger_is_documented() -> None:
    paths = [path for app in ("streams", "monitoring") for path in (ROOT / app).rglob("*.py")]
    sources = {path: path.read_text() for path in paths}
    named = {
        name.strip('"') if name != "__name__" else ".".join(path.relative_to(ROOT).parts)[:-3]
        for path, source in sources.items()
        for name in re.findall(r"getLogger\((.*?)\)", source)
    }
    assert set(table(OPERATIONS, "Loggers")) == named


PATIENT = """\
from streams import consumer
consumer("orders", group="patient", max_retries=30)(print)
"""


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_a_celery_worker_does_not_bury_what_the_decorator_says_to_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """A worker of Celery imports no consumers.py by itself."""
    tasks = pytest.importorskip("streams.tasks", exc_type=ImportError)
    (tmp_path / "patient").mkdir()
    (tmp_path / "patient" / "__init__.py").touch()
    (tmp_path / "patient" / "consumers.py").write_text(PATIENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "patient"]
    send("orders", 1)
    sequence("default")
    partition = Partition.objects.get()
    group = ConsumerGroup.objects.create(topic=partition.topic, name="patient")
    RetryMessage.objects.create(
        group=group, partition=partition, offset=0, attempt=18, due_at=UtcNow()
    )
    tasks.retries()
    assert RetryMessage.objects.get().attempt == 18
    assert not DeadMessage.objects.exists()
