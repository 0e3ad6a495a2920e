"""Sets a scenario up: its own servers and database, the processes, and the clock."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import Error, connection

from streams.http.pulling.groups import ensure_group
from streams.models import ApiToken, Delivery, RetryMessage, SystemConfig, Topic
from streams.operate.tokens import issue, right_of
from streams.operate.topics import create
from tests.lab.scenarios import fleet, preparing
from tests.lab.scenarios.consumed import all_is_consumed
from tests.lab.scenarios.disturbances import Disturbance
from tests.lab.scenarios.fleet import Process
from tests.lab.scenarios.report import Report, groups, missing, report
from tests.lab.scenarios.rollups import differences, minutes
from tests.servers import free_port

SETTLE_SECONDS = 180.0
PARTITIONS = 6
# Messages of producers that send until they are killed.
ENDLESS = 100_000_000
# A process sends some hundred transactions a second: so many of them end a full run in minutes.
PRODUCERS, PRODUCERS_IN_FULL = 2, 5
# Prepared messages a second, of each caller.
RATE = 25.0
# What a consumer says of another one whose lock is free.
GONE = "is gone: its lease ends now"
# What a caller prints when it was answered.
TOLD = re.compile(r"(\S+): (prepared|committed|rolled back) (\d+)")


class Stage:
    """Runs producers, consumers and one disturbance until everything committed is consumed."""

    def __init__(
        self,
        database: Any,
        redis: Any,
        *,
        full: bool,
        may_miss: bool = False,
        cast: str = "",
        minutes: float = 0.0,
    ) -> None:
        self.database = database
        self.redis = redis
        self.full = full
        self.may_miss = may_miss
        self.cast = cast
        self.folder = Path(tempfile.mkdtemp(prefix="ems-scenario-"))
        self.producers: list[Process] = []
        self.consumers: list[Process] = []
        self.services: list[Process] = []
        self.pullers: list[Process] = []
        self.seconds = minutes * 60
        if cast == "spark":
            self._cast(ENDLESS)
            self._cast_services()
        elif cast == "two-phase":
            self._cast_callers()
        elif cast != "order":
            self._cast(50_000 if full else 1_500)
        if cast == "order":
            self._cast_in_order(2_000 if full else 150)
        if cast == "http":
            self._cast_web()
        if cast == "everything":
            self._cast_all(5_000 if full else 300)
        self.beat = fleet.beat(self.folder)
        self._extra: list[Process] = [self.beat]
        self._started = time.monotonic()

    def _cast(self, n: int) -> None:
        """Cast the seed's consumers, and producers that together send 2 n to A and n to B."""
        number = PRODUCERS_IN_FULL if self.full else PRODUCERS
        share = n // number
        self.producers = [
            self._producer(f"P{i}", f"A={2 * share}", f"B={share}") for i in range(1, number + 1)
        ]
        self.consumers = [
            fleet.consumer("C1", self.folder, "Group1"),
            fleet.consumer("C2", self.folder, "Group2"),
            fleet.consumer("C3", self.folder, "Group1", "Group3"),
        ]

    def _cast_all(self, n: int) -> None:
        Topic.objects.create(name="A", retention_consumed=True)
        Topic.objects.create(name="B", retention_consumed=True)
        create("O", PARTITIONS, "default")
        self.producers += [self._producer(f"P{i}", f"O={n}") for i in range(6, 10)]
        self.consumers += [
            fleet.consumer("C4", self.folder, "Group4", "Order"),
            fleet.consumer("C5", self.folder, "Order", "All"),
        ]

    def _cast_in_order(self, n: int) -> None:
        create("O", PARTITIONS, "default")
        self.producers = [self._producer(f"P{i}", f"O={n}") for i in range(1, 9)]
        self.consumers = [fleet.consumer(f"C{i}", self.folder, "Order") for i in range(1, 5)]

    def _cast_callers(self) -> None:
        """Cast callers of prepare(), and consumers, which also ask about what was prepared."""
        create("A", 3, "default")
        for name, value in {"verifyStepSeconds": 1, "verifyMaxTimes": 100}.items():
            SystemConfig.objects.create(name=name, value=value)
        self.producers = [fleet.caller(f"P{n}", self.folder, RATE) for n in range(1, 5)]
        self.consumers = [fleet.consumer(f"C{n}", self.folder, "Group1") for n in (1, 2)]

    def told(self) -> Iterator[tuple[str, preparing.Key]]:
        """Yield what the callers of prepared messages were told of each."""
        for path in self.folder.glob("P*.log"):
            for line in path.read_text().splitlines():
                if found := TOLD.fullmatch(line):
                    producer, what, n = found.groups()
                    yield what, (producer, int(n))

    def taken_for_dead(self) -> Iterator[str]:
        """Yield which consumers have judged another one, whose lock was free, to be gone."""
        for process in self.consumers:
            if GONE in process.log():
                yield f"{process.name} has taken another consumer for dead, and none has died"

    def _cast_services(self) -> None:
        """Cast two services that roll up by Spark: one works, one waits."""
        settings = connection.settings_dict
        path = self.folder / "ems.cnf"
        path.touch(mode=0o600)
        path.write_text(
            f"[client]\nhost={settings['HOST']}\nport={settings['PORT']}\nuser=root\n"
            f"database={settings['NAME']}\n[ems]\nvendor=mysql\n"
        )
        self.services = [fleet.service(f"S{n}", self.folder, path) for n in (1, 2)]

    def _cast_web(self) -> None:
        """Cast a web server, and three clients that pull in a group of their own."""
        Topic.objects.get_or_create(name="A")
        ensure_group("A", "Pulled", "default", start="earliest")
        token = ApiToken(name="scenario", created_by="scenario")
        rights = [right_of("consume:*/*")]
        os.environ["EMS_SCENARIO_TOKEN"] = issue(token, rights, "default")
        port = free_port()
        self.services = [fleet.web("web", self.folder, port)]
        self.pullers = [fleet.puller(f"H{n}", self.folder, port) for n in (1, 2, 3)]

    def rounds(self, *, small: int, full: int) -> int:
        return full if self.full else small

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f} s  {text}", flush=True)

    def producer(self, name: str, *words: str) -> Process:
        """Start one more producer."""
        process = self._producer(name, *words)
        process.start()
        self._extra.append(process)
        return process

    def end_producers(self) -> None:
        """Enough: wherever they are, what they have committed is what was sent."""
        for process in self.producers:
            process.kill()
        self._extra += self.producers
        self.producers = []

    def crash(self, server: Any) -> None:
        server.process.kill()
        server.process.wait()

    def restart(self, server: Any) -> None:
        server.start()
        server.wait()
        connection.close()

    def run(self, disturbance: Disturbance) -> Report:
        try:
            for process in (*self.consumers, *self.producers, *self.services, *self.pullers):
                process.start()
            self.say(f"{len(self.consumers)} consumers and {len(self.producers)} producers run")
            self._disturb(disturbance)
            self._until("all is sent", lambda: all(p.status is not None for p in self.producers))
            for process in self.producers:
                if process.status:
                    raise SystemExit(f"{process.name} failed:\n{process.log()[-3000:]}")
            self._until("all is consumed", self._consumed)
            if self.cast == "spark":
                self._until("all is rolled up", lambda: not differences())
                self.say(f"{minutes()} minutes are as plain SQL counts them")
            if self.cast == "two-phase":
                self.say(preparing.counts())
            return report()
        finally:
            for process in (*self.consumers, *self.producers, *self.pullers, *self.services):
                process.stop()
            for process in self._extra:
                process.stop()

    def _producer(self, name: str, *words: str) -> Process:
        return fleet.producer(name, self.folder, *words)

    def _disturb(self, disturbance: Disturbance) -> None:
        # Before a consumer has started there is nothing to disturb.
        for process in self.consumers:
            process.says("database connections")
        time.sleep(2.0)  # the length of the quiet before it is part of the scenario
        for pause in disturbance(self):
            time.sleep(pause)
        self.say("the disturbance is over")

    def _consumed(self) -> bool:
        if self.may_miss:
            return all_is_consumed()
        open_ = Delivery.objects.open().exists() or RetryMessage.objects.exists()
        open_ = open_ or preparing.unfinished() > 0
        return not open_ and not any(missing(group) for group in groups())

    def _until(self, what: str, condition: Any) -> None:
        # A JVM takes two minutes to start where much else is at work.
        slow = self.full or self.services
        limit = time.monotonic() + SETTLE_SECONDS * (10 if slow else 1)
        while time.monotonic() < limit:
            with suppress(Error):
                if condition():
                    self.say(what)
                    return
            time.sleep(0.5)
        processes = (*self.consumers, *self.services, *self.pullers)
        logs = "\n".join(f"--- {p.name}\n{p.log()[-2000:]}" for p in processes)
        if self.cast == "spark":
            logs += "\n".join(differences())
        print(f"never: {what}\n{logs}\n{report()}", flush=True)
        raise SystemExit(1)
