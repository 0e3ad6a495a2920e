"""Processes that do rounds of work on command, all at the same moment."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

Work = Callable[[int], None]  # does so many units


class Team:
    """``size`` processes, each with what ``prepare(*arguments)`` returned in it."""

    def __init__(self, size: int, prepare: Callable[..., Work], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")  # nothing of this process is shared
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_member, args=(theirs, prepare, arguments))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()  # ready

    def round(self, units: int) -> float:
        """Let each do so many units; returns the units a second of all together."""
        for pipe in self._pipes:
            pipe.send(units)
        times = [pipe.recv() for pipe in self._pipes]
        seconds = max(end for _start, end in times) - min(start for start, _end in times)
        return float(units * len(self._pipes) / seconds)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _member(pipe: Connection, prepare: Callable[..., Work], arguments: tuple[object, ...]) -> None:
    work = prepare(*arguments)
    pipe.send("ready")
    while True:
        try:
            units = pipe.recv()
        except EOFError:
            return
        start = time.monotonic()  # one clock for all processes of the machine
        work(units)
        pipe.send((start, time.monotonic()))
