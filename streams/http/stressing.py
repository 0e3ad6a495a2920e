"""Begins a stress test: notes it, and starts the process that carries it out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import TopicExists, describe
from streams.http.problems import Problem
from streams.models import Step, StressRun, Topic, UtcNow
from streams.models.stress_run import KEPT
from streams.rules.names import MAX_NAME, validated_name
from streams.stress import Load

# The row that is locked, so that of two requests at once one begins.
STRESS = "stress"


def begin(load: Load, who: str, using: str) -> StressRun:
    """Note a new run; raises Problem (409) while one is under way, and InvalidName."""
    if not Path(sys.executable).name.startswith("python"):
        raise Problem(503, "no_python", "This server does not know its Python: use ems_stress.")
    validated_name(load.topic, "topic", MAX_NAME)
    if load.group:
        validated_name(load.group, "group", MAX_NAME)
    if Topic.objects.using(using).filter(name=load.topic).exists():
        raise TopicExists(f"There is a topic {load.topic} already.")
    return retrying(_begin, using, load, who, using)


def _begin(load: Load, who: str, using: str) -> StressRun:
    steps = Step.objects.using(using)
    steps.get_or_create(name=STRESS, defaults={"last_run_at": UtcNow()})
    with own_transaction(using):
        steps.select_for_update().get(name=STRESS)
        steps.filter(name=STRESS).update(last_run_at=UtcNow())
        rows = StressRun.objects.using(using)
        running = rows.running().first()
        if running is not None:
            raise Problem(409, "stress_running", f"Run {running.pk} is under way.")
        old = rows.order_by("-pk").values_list("pk", flat=True)[KEPT - 1 :][:KEPT]
        rows.filter(pk__in=list(old)).delete()
        return rows.create(load=asdict(load), who=who)


def start(run: int, using: str) -> None:
    """Start the process of a run: a fork of a web server would share its connections."""
    words = [sys.executable, "-m", "django", "ems_stress", "--run", str(run), "--database", using]
    try:
        process = subprocess.Popen(  # noqa: S603 - no word of it comes from the request
            words,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:  # it must not hold up the next run
        rows = StressRun.objects.using(using).filter(pk=run)
        rows.update(error=describe(error), finished_at=UtcNow())
        raise
    # Somebody must wait for it, or it stays in the table of processes.
    threading.Thread(target=process.wait, name="ems-stress", daemon=True).start()
