"""Runs the consumers of a process, on all databases that they consume from."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

from django.db import DatabaseError, Error, connections

from streams.conf import make_sure_enabled, settings
from streams.consume.limits import Overrides, shares
from streams.consume.registry import Registration
from streams.database.retrying import tables_missing, transient
from streams.errors import ConfigurationError, NotMigrated, describe
from streams.log.routes import make_sure_routes
from streams.logs import event
from streams.process.availability import FIRST_PAUSE_SECONDS, say_away, wait_for
from streams.process.broadcast.file import DEFAULT_NAME
from streams.process.feeds import NoGroup
from streams.process.runtime import Launch
from streams.process.shared.activity import Activity
from streams.process.shared.database_work import DatabaseWork, Silence
from streams.process.shared.life_signs import LifeSigns
from streams.process.shared.signals import Signals
from streams.process.shared.stopping import Stopping
from streams.process.supervisor import LEAVE_SECONDS, LOOK_SECONDS, WORK_SECONDS, Supervisor

logger = logging.getLogger("streams.supervisor")


class Start(Thread):
    """The start of a database's supervisor, in a thread that is watched, as the others are."""

    def __init__(self, using: str, begin: Callable[[str, DatabaseWork], None]) -> None:
        super().__init__(name=f"start-{using}", daemon=True)
        self._using = using
        self._begin = begin
        self._work = DatabaseWork(using)

    @property
    def statements(self) -> int | None:
        """Return how many statements it has made; None while it rests, and at its end."""
        return self._work.count

    def run(self) -> None:
        self._begin(self._using, self._work)


class Fleet:
    """The supervisors of a process, one for each database: started, watched, drained.

    A database that is away stops its own workers only, at the start, too: then each supervisor is
    made in a thread of its own, as soon as its database answers. A failure ends the process.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[Registration]],
        *,
        overrides: Overrides = Overrides(),  # noqa: B008 - immutable
        drain: bool = False,
        client: str = DEFAULT_NAME,
        signals: Signals | None = None,
        signs: LifeSigns = LifeSigns(),  # noqa: B008 - it shows nothing
    ) -> None:
        self._groups = groups
        self._shares = shares(groups)
        self._signals = signals or Signals()
        self._signs = signs
        self._lifecycle = Stopping()
        self._activity = Activity(groups)
        self._launch = Launch(overrides, drain, client, self._lifecycle, self._activity)
        self._supervisors: list[Supervisor] = []
        # What the threads below have made: a supervisor that is registered, or why there is none.
        self._made: SimpleQueue[Supervisor | BaseException] = SimpleQueue()
        self._beginning: list[Start] = []
        self._silence = Silence()
        self._without_groups = 0
        self._error: BaseException | None = None

    def run(self) -> int:
        """Run until stopped; return the exit status.

        It is 0, or 1 after a failure or if handlers were left running. What keeps a supervisor from
        being made is raised, after the others have drained. Raises Disabled where EMS is off.
        """
        make_sure_enabled()
        if len(self._groups) == 1:
            (using,) = self._groups
            with self._signs.waiting():
                if not wait_for(using, self._signals.wait):
                    return 0
                self._supervisors = [self._make(using)]
        self._signals.install()
        try:
            return self._run()
        finally:
            self._signals.restore()

    @property
    def left_behind(self) -> bool:
        """Tell whether a thread still runs that would keep the process from ending."""
        beginning = any(thread.is_alive() for thread in self._beginning)
        return beginning or any(one.left_behind for one in self._supervisors)

    def work(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield the topic and name of each group, its threads, and its deliveries in hand."""
        for one in self._supervisors:
            yield from one.work()

    def client_ids(self) -> list[str]:
        """Return the client id on each database."""
        return [one.client_id for one in self._supervisors]

    def _run(self) -> int:
        if self._supervisors:
            (only,) = self._supervisors
            with self._signs.waiting(), _migrated(*self._groups):
                only.begin()
            only.start()
        else:
            self._begin_all()
        connections.close_all()  # this thread no longer uses them, so the server would close them
        while not self._lifecycle.stopping:
            self._signs.beat()
            if self._supervisors:
                self._signs.ready()
            if self._signals.wait(LOOK_SECONDS):
                self._lifecycle.stop()
                logger.info(
                    "Stopping: finishing what runs.",
                    extra=event("consumer.stopping", **self._who()),
                )
            self._take_up()
            self._watch_starts()
            for one in self._supervisors:
                one.watch()
        self._signs.stopping()
        drained = self._finish()
        return self._status(drained=drained)

    # -- the start --

    def _make(self, using: str) -> Supervisor:
        """Return the supervisor of a database that answers."""
        with _migrated(using):
            # Before anything is written, and once the database answers: one that is away must not
            # keep the others from running.
            make_sure_routes(using)
            return Supervisor(self._groups[using], using, self._launch, self._shares[using])

    def _begin_all(self) -> None:
        for using in self._groups:
            thread = Start(using, self._begin)
            self._beginning.append(thread)
            thread.start()

    def _watch_starts(self) -> None:
        """Stop the process when a database neither answers nor refuses the thread that begins."""
        for thread in self._beginning:
            if self._silence.seconds(thread, LOOK_SECONDS) >= WORK_SECONDS:
                self._lifecycle.fail_unanswered(thread.name, WORK_SECONDS)

    def _begin(self, using: str, work: DatabaseWork) -> None:
        try:
            with work.under_way():
                supervisor = self._begun(using, work)
            if supervisor:
                self._made.put(supervisor)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._made.put(error)
        finally:
            connections.close_all()

    def _begun(self, using: str, work: DatabaseWork) -> Supervisor | None:
        """Return the supervisor, registered; None if the process is to stop before it can be."""

        def rest(seconds: float) -> bool:
            with work.resting():
                return self._lifecycle.wait(seconds)

        while wait_for(using, rest):
            try:
                supervisor = self._make(using)
                with _migrated(using):
                    supervisor.begin()
            except NoGroup:
                self._activity.leave_out(using)
                raise
            except Error as error:
                if not transient(error):
                    raise
                say_away(using, error, FIRST_PAUSE_SECONDS)
                connections[using].close()
                if rest(FIRST_PAUSE_SECONDS):
                    return None
            else:
                return supervisor
        return None

    def _take_up(self) -> None:
        """Start what was made meanwhile, also when the process is stopping: its end deregisters."""
        while not self._made.empty():
            made = self._made.get()
            if isinstance(made, Supervisor):
                self._supervisors.append(made)
                made.start()
                continue
            if isinstance(made, NoGroup):
                self._without_groups += 1
                if self._without_groups < len(self._groups):
                    continue  # its groups are left out, and the log says why
                made = ConfigurationError(str(made))
            self._error = self._error or made
            self._lifecycle.fail(describe(made))

    # -- the end --

    def _finish(self) -> bool:
        """End all supervisors; return whether their workers have ended."""
        drained = self._drained()
        limit = time.monotonic() + LEAVE_SECONDS
        for thread in self._beginning:  # one may just have registered this process
            thread.join(timeout=max(0.0, limit - time.monotonic()))
        self._take_up()
        for one in self._supervisors:
            one.leave()
        for one in self._supervisors:
            one.end()
        return drained

    def _drained(self) -> bool:
        """Wait for the workers, but not for one that hangs; return whether all have ended.

        It ends sooner at a second signal, or after DRAIN_SECONDS.
        """
        limit = time.monotonic() + settings().DRAIN_SECONDS
        while any(one.draining for one in self._supervisors):
            self._signs.beat()
            for one in self._supervisors:
                if not one.working:
                    one.leave()  # another database may take its time
            if self._signals.wait(0.05):
                logger.warning(
                    "A second signal: ending at once, without the calls that still run.",
                    extra=event("consumer.left", **self._who()),
                )
                return False
            if time.monotonic() > limit:
                logger.warning(
                    "Handlers still run after DRAIN_SECONDS: ending without them.",
                    extra=event("consumer.left", **self._who()),
                )
                return False
        return not any(one.working for one in self._supervisors)

    def _status(self, *, drained: bool) -> int:
        if failure := self._lifecycle.failure:
            logger.error(
                "Stopped after a failure: %s",
                failure,
                extra=event("consumer.failed", **self._who(), error=failure),
            )
        else:
            logger.info("Stopped.", extra=event("consumer.stopped", **self._who()))
        if self._error and not self.left_behind:
            raise self._error
        return 0 if drained and not failure else 1

    def _who(self) -> dict[str, str]:
        """Return what the log records of the process have in common."""
        return {"client": ", ".join(self.client_ids()), "database": ", ".join(self._groups)}


@contextmanager
def _migrated(using: str) -> Iterator[None]:
    """Raise NotMigrated for an error that says that tables of EMS are missing."""
    try:
        yield
    except DatabaseError as error:
        if tables_missing(error):
            raise NotMigrated.on(using) from error
        raise
