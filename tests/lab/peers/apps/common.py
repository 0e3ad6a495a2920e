"""What the programs of all peers have in common: the message, the handler and the command line.

PEER_URL      the server
PEER_OUT      the file to which each handler call adds a line: number, time of sending, its own time
PEER_PAUSE    seconds that a handler takes
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

URL = os.environ.get("PEER_URL", "")
SIZE = 1024
FILLING = "x" * (SIZE - 60)
# Workers of each peer, as its own documentation recommends to start them: two processes.
THREADS = 4

_out: list[int] = []


def handle(message: dict[str, Any]) -> None:
    """Do what every peer's handler does."""
    if not _out:
        path = os.environ["PEER_OUT"]
        _out.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    os.write(_out[0], f"{message['n']} {message['sent']} {time.time()}\n".encode())
    if pause := float(os.environ.get("PEER_PAUSE", "0")):
        time.sleep(pause)


def message(number: int) -> dict[str, Any]:
    return {"n": number, "sent": time.time(), "filling": FILLING}


def messages(first: int, count: int, rate: float) -> Iterable[dict[str, Any]]:
    """Yield messages, at most ``rate`` a second if it is not 0."""
    began = time.monotonic()
    for number in range(first, first + count):
        if rate:
            time.sleep(max(0.0, began + (number - first) / rate - time.monotonic()))
        yield message(number)


def run_worker(*words: str) -> None:
    """Become the peer's own worker."""
    os.execv(sys.executable, [sys.executable, "-W", "ignore", *words])  # noqa: S606


def main(
    send: Callable[[dict[str, Any]], Any],
    work: Callable[[str], Any],
    setup: Callable[[], Any] = lambda: None,
) -> None:
    verb, *words = sys.argv[1:]
    if verb == "setup":
        setup()
    elif verb == "work":
        work(words[0])
    else:
        first, count, rate = int(words[0]), int(words[1]), float(words[2])
        send(message(-1 - first))  # connects, and fills what the library caches
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.monotonic()
        for one in messages(first, count, rate):
            send(one)
        print(json.dumps([start, time.monotonic()]), flush=True)
