"""Keeps the Spark session of the service: started when first needed, and anew each day."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from sparkjobs import jvm
from sparkjobs.session import session

# Seconds after which a session gets a new JVM: what Spark and Java keep grows slowly.
LIFE_SECONDS = 24 * 3600.0
# Seconds for which a session for much work stays, though there is little: a start costs more.
LARGE_SECONDS = 3600.0


class Resident:
    """The session, if there is one; ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spark: SparkSession | None = None
        self._began = 0.0
        self._is_brief = False
        self._large_at = float("-inf")

    def session(self, *, brief: bool = False) -> SparkSession:
        """Return the session, in a JVM that lives and is not older than LIFE_SECONDS.

        One for little work (``brief``) takes half the processor time and memory, and is too slow
        for much: so there is another JVM for that.
        """
        now = self._clock()
        if not brief:
            self._large_at = now
        brief = now - self._large_at > LARGE_SECONDS
        if self._spark is not None and (
            jvm.is_dead() or now - self._began > LIFE_SECONDS or self._is_brief != brief
        ):
            self.end()
        if self._spark is None:
            self._spark = session("serve", brief=brief)
            self._began, self._is_brief = self._clock(), brief
        return self._spark

    def end(self) -> None:
        """End the session and its JVM; a session that is asked for later is a new one."""
        spark, self._spark = self._spark, None
        if spark is not None:
            jvm.end(spark)
