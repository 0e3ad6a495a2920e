"""Says on standard error what a job by hand does while it does it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# A job that is quicker says nothing but what it has found.
EVERY_SECONDS = 10.0


@contextmanager
def shown(job: str) -> Iterator[None]:
    """Say every EVERY_SECONDS how many tasks of Spark's stages are done."""
    end = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        while not end.wait(EVERY_SECONDS):
            with suppress(Exception):  # Spark may be starting or ending now
                if line := tasks():
                    seconds = time.monotonic() - began
                    print(f"{job}: {line}, {seconds:.0f} s", file=sys.stderr, flush=True)

    threading.Thread(target=watch, name="ems-progress", daemon=True).start()
    try:
        yield
    finally:
        end.set()


def tasks() -> str:
    """Return how far the stages that run now are; empty if none does."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return ""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    found = [stage for stage in stages if stage is not None]
    if not found:
        return ""
    done = sum(stage.numCompletedTasks for stage in found)
    return f"{done:,} of {sum(stage.numTasks for stage in found):,} tasks"
