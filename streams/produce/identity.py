"""Names the producer of a message: the address of the host, the process and the thread."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streams.rules.names import MAX_PRODUCER

_identity = threading.local()
# A forked process is another producer.
os.register_at_fork(after_in_child=lambda: _identity.__dict__.clear())


def producer() -> tuple[str, tuple[str, ...]]:
    """Return the name of this thread, ``ip@pid@thread``: as SQL, and its parameter if any."""
    try:
        return _identity.sql  # type: ignore[no-any-return]
    except AttributeError:
        text = producer_name()
        plain = re.fullmatch(r"[\w.:@ ()-]*", text, re.ASCII)
        _identity.sql = (f"'{text}'", ()) if plain else ("%s", (text,))
        return producer()


def producer_name() -> str:
    """Return the name of this thread as a text."""
    name = getattr(_identity, "name", None)
    return name or f"{host()}@{os.getpid()}@{threading.current_thread().name}"[:MAX_PRODUCER]


@contextmanager
def acting_for(name: str) -> Iterator[None]:
    """Let ``name`` be the producer of what this thread sends in the block: it serves another."""
    before = dict(vars(_identity))
    vars(_identity).clear()
    _identity.name = name[:MAX_PRODUCER]
    try:
        yield
    finally:
        vars(_identity).clear()
        vars(_identity).update(before)


_host: str | None = None


def host() -> str:
    """Return the address that this machine sends from, or its name if it has none.

    A datagram socket that sends nothing reads it from the routing table (192.0.2.1 is reserved
    for documentation, RFC 5737): a name server that does not answer would delay a send.
    """
    global _host
    if _host is None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                _host = str(probe.getsockname()[0])
            except OSError:
                _host = socket.gethostname()
    return _host
