"""Does to the JVM of this process what Spark's options cannot do, and ends it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

LOG4J = (Path(__file__).parent / "log4j2.properties").as_uri()
# The JVM prints this at each start: Spark asks for the module, and no option keeps the line away.
NOISE = b"Using incubator modules: jdk.incubator.vector"
# Seconds that a JVM gets for its end.
PATIENCE_SECONDS = 10.0


def was_submitted() -> bool:
    """Tell whether spark-submit has started this process, from its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def adjust_submitted() -> None:
    """Set the time zone in a JVM that runs: its command line is spark-submit's."""
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None  # noqa: S101 - has just been made
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("UTC"))


@contextmanager
def quiet_start() -> Iterator[None]:
    """Let a JVM that starts meanwhile print all but NOISE on standard error."""
    read, write = os.pipe()
    ours = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    thread = threading.Thread(target=_pass_on, args=(read, ours), name="ems-jvm", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        # What the JVM has printed says why it did not start.
        os.dup2(ours, 2)
        thread.join(1)
        raise
    finally:
        os.dup2(ours, 2)


def _pass_on(read: int, ours: int) -> None:
    with os.fdopen(read, "rb") as lines, suppress(OSError):
        for line in lines:
            if NOISE not in line:
                os.write(ours, line)
    os.close(ours)


def is_dead() -> bool:
    """Tell whether the JVM of this process was started and has ended."""
    process = _process()
    return process is not None and process.poll() is not None


def end(spark: SparkSession | None) -> None:
    """Stop the session and end its JVM, also one that has died; the next session gets a new one.

    It is killed after PATIENCE_SECONDS. A JVM of spark-submit stays.
    """
    process = _process()
    with suppress(Exception):
        if spark is not None:
            spark.stop()
    if process is None:
        return
    with suppress(Exception):
        SparkContext._gateway.shutdown()
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()  # which the JVM takes for its end
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # What pyspark keeps of the old one: it cannot start a second JVM by itself.
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _process() -> subprocess.Popen[bytes] | None:
    return getattr(SparkContext._gateway, "proc", None)
