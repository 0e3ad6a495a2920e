"""Puts a TCP proxy before MySQL or MariaDB that breaks connections at a chosen statement.

It reads the client's packets, so it can act on the one statement that a test is about::

    def test_something(proxied):                 # the fixture: see tests/conftest.py
        proxied.lose_reply_to(b"COMMIT")
        ...                                      # the server commits, the client gets error 2013
        assert proxied.fired == [b"COMMIT"]      # it did happen

A pattern is looked for in every packet of the client, as whole words (COMMIT is not in "SET
autocommit = 0") and whatever the case of its letters; statements travel as text with their
parameters filled in. Encryption is switched off in the server's greeting.
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

HEADER = 4  # three bytes of length, one of sequence number
CLIENT_SSL = 0x0800
FIRST_OF_A_QUERY = b"\x00\x03"  # the number of the packet, COM_QUERY
BEGINNING = 80  # bytes of a statement: enough to tell which one it is
END_SECONDS = 0.05


@dataclass
class Fault:
    pattern: bytes
    times: int
    forward: bool
    freeze: bool = False

    def found_in(self, packet: bytes) -> bool:
        whole_words = rb"(?<!\w)" + re.escape(self.pattern) + rb"(?!\w)"
        return re.search(whole_words, packet, re.IGNORECASE) is not None


class Proxy:
    """``with Proxy(host, port) as proxy:`` listens on ``proxy.host``, ``proxy.port``.

    ``host`` may be the path of a Unix socket. Every fault is counted down over all connections;
    ``fired`` lists the patterns of those that happened, in order. ``statements`` has the beginning
    of each that the server counts as one of its Questions.
    """

    def __init__(self, host: str, port: int | str = 0) -> None:
        self.fired: list[bytes] = []
        self.greets_as: bytes | None = None  # the version that the server says it has
        self.statements: list[bytes] = []
        self._target = (host, int(port or 3306))
        self._faults: list[Fault] = []
        self._links: set[Link] = set()
        self._changed = threading.Condition()
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the server is away: the client is let go
                    Link(proxy, self.request).run()

        class Server(socketserver.ThreadingTCPServer):
            request_queue_size = 100

        self._server = Server(("127.0.0.1", 0), Handler)
        self.host, self.port = "127.0.0.1", self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(END_SECONDS,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self.kill_connections()
        self._server.server_close()  # waits for the threads of the connections

    def lose_reply_to(self, pattern: bytes, times: int = 1) -> None:
        """Let the next ``times`` packets with ``pattern`` be executed, and lose the answers.

        The packet is forwarded; when the server answers, the answer is dropped and the client's
        connection closed.
        """
        self._add(Fault(pattern, times, forward=True))

    def cut_before(self, pattern: bytes, times: int = 1) -> None:
        """Let the next ``times`` packets with ``pattern`` never reach the server.

        The connection is closed on both sides instead; the server rolls back what was open.
        """
        self._add(Fault(pattern, times, forward=False))

    def freeze_at(self, pattern: bytes, times: int = 1) -> None:
        """Let the next ``times`` packets with ``pattern`` vanish, with all that follow them.

        The connection stays open, without an error and without an answer, as behind a firewall
        that has forgotten it.
        """
        self._add(Fault(pattern, times, forward=False, freeze=True))

    def kill_connections(self) -> None:
        """Close every connection, on both sides, at whatever it is doing. New ones are accepted."""
        with self._changed:
            links = list(self._links)
        for link in links:
            link.close()

    def wait_until_fired(self, count: int = 1, timeout: float = 30) -> None:
        """Wait until ``count`` faults have happened, also in other processes."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.fired) >= count, timeout):
                raise AssertionError(f"{len(self.fired)} of {count} faults: {self.fired}")

    def connect(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(host)
        return connection

    def fault_for(self, packet: bytes) -> Fault | None:
        """Return the fault that this packet causes, counted down, or None."""
        with self._changed:
            for fault in self._faults:
                if fault.times and fault.found_in(packet):
                    fault.times -= 1
                    return fault
        return None

    def note(self, fault: Fault) -> None:
        with self._changed:
            self.fired.append(fault.pattern)
            self._changed.notify_all()

    def count(self, packet: bytes) -> None:
        with self._changed:
            if packet[HEADER - 1 : HEADER + 1] == FIRST_OF_A_QUERY:
                self.statements.append(packet[HEADER + 1 :][:BEGINNING])

    @contextlib.contextmanager
    def listed(self, link: Link):
        with self._changed:
            self._links.add(link)
        try:
            yield
        finally:
            with self._changed:
                self._links.discard(link)

    def _add(self, fault: Fault) -> None:
        with self._changed:
            self._faults.append(fault)


class Link:
    """Joins one client's connection with one to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = proxy.connect()
        self._losing: Fault | None = None

    def run(self) -> None:
        replies = threading.Thread(target=self._pass_replies)
        with self._proxy.listed(self), self._server, self._client:
            try:
                self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                greeting = _without_encryption(_packet(self._server))
                self._client.sendall(_renamed(greeting, self._proxy.greets_as))
                replies.start()
                self._pass_packets()
            except OSError:
                pass  # one side is gone: so goes the other
            finally:
                self.close()
                if replies.ident:
                    replies.join()

    def close(self) -> None:
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _pass_packets(self) -> None:
        while packet := _packet(self._client):
            self._proxy.count(packet)
            fault = self._proxy.fault_for(packet[HEADER:])
            if fault and not fault.forward:
                self._proxy.note(fault)  # first: who notices the loss may look for it at once
                while fault.freeze and _packet(self._client):
                    pass
                self.close()
                return
            self._losing = self._losing or fault
            self._server.sendall(packet)

    def _pass_replies(self) -> None:
        try:
            while reply := self._server.recv(65536):
                if self._losing:
                    self._proxy.note(self._losing)
                    self.close()
                    return
                self._client.sendall(reply)
        except OSError:
            pass
        self.close()


def _packet(source: socket.socket) -> bytes:
    """Return the next packet with its header; empty at the end of the stream."""
    header = _exactly(source, HEADER)
    return header and header + _exactly(source, int.from_bytes(header[:3], "little"))


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            return b""
        data += part
    return data


def _renamed(greeting: bytes, version: bytes | None) -> bytes:
    """Return the greeting with another version, which follows the byte of the protocol."""
    if version is None:
        return greeting
    rest = greeting[HEADER + 1 :].partition(b"\0")[2]
    payload = greeting[HEADER : HEADER + 1] + version + b"\0" + rest
    return len(payload).to_bytes(3, "little") + greeting[3:HEADER] + payload


def _without_encryption(greeting: bytes) -> bytes:
    """Return the server's first packet without the offer of TLS, which the proxy cannot read."""
    # protocol (1), version up to a zero, connection id (4), salt (8), zero (1), capabilities (2)
    end_of_version = greeting.find(b"\0", HEADER + 1)
    if greeting[HEADER : HEADER + 1] != b"\x0a" or end_of_version < 0:
        return greeting  # an error: too many connections
    at = end_of_version + 1 + 4 + 8 + 1
    flags = int.from_bytes(greeting[at : at + 2], "little") & ~CLIENT_SSL
    return greeting[:at] + flags.to_bytes(2, "little") + greeting[at + 2 :]
