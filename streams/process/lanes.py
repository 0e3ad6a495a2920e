"""Runs the lanes of a worker: threads that make the calls for the keys of its claims."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue

from django.db import Error, close_old_connections, connections, reset_queries

from streams.consume.event_loop import with_event_loop
from streams.deliver.lanes import Lane
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.connections import work_on


class LaneThreads:
    """The threads in which one worker lets the keys of one group run side by side.

    They have connections of their own, for the handlers alone. They end when this does.
    """

    def __init__(self, runtime: Runtime, feed: RunningGroup, worker: str) -> None:
        self.lanes: Sequence[Lane] = [SimpleQueue() for _ in range(feed.registration.lanes)]
        for number, lane in enumerate(self.lanes):
            thread = threading.Thread(
                target=_run,
                args=(lane, runtime, feed),
                name=f"{worker}-lane-{number}",
                daemon=True,
            )
            thread.start()
        weakref.finalize(self, _end, self.lanes)


def _end(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.put(None)


def _run(lane: Lane, runtime: Runtime, feed: RunningGroup) -> None:
    def work() -> None:
        _make_calls(lane, runtime)

    work_on(runtime.using)
    if feed.registration.asynchronous:
        with_event_loop(work)
    else:
        work()


def _make_calls(lane: Lane, runtime: Runtime) -> None:
    try:
        while True:
            try:
                call = lane.get(timeout=runtime.idle_limit.patience)
            except Empty:
                connections.close_all()  # before the server does, see Worker._rest
                continue
            if call is None:
                return
            # The claim waits for the end of the call, which the call itself reports. So nothing is
            # read before it, and it is made also after a loss of the connection: whoever needs
            # it opens it anew.
            with suppress(Error):
                runtime.idle_limit.allow(timedelta(0))  # its claim has allowed its consume_timeout
                close_old_connections()
            reset_queries()
            call()
            del call  # its message is let go
    finally:
        connections.close_all()
