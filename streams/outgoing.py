"""Sends an HTTP request to an address of the operator's, and to no other.

Somebody who may edit an alarm channel or a check endpoint must not reach by it what only this host
can reach. So the name is resolved once, each of its addresses is checked, and the connection goes
to one of these: a name that changes its address in between (DNS rebinding) has no effect. Redirects
are not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SIGNATURE = "Ems-Signature"
# The most of an answer that is read.
MOST = 64 * 1024

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Of IPv6 addresses with an IPv4 address inside: what they lead to is that one.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All others that hosts of the Internet have. What else an address may have inside does not matter.
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


class SendingFailed(Exception):
    """The request was not answered with 2xx; ``status`` is that of the answer, None without one.

    ``arrived`` is False if there was no connection: the receiver knows nothing of the request.
    """

    def __init__(self, text: str, status: int | None = None, *, arrived: bool = True) -> None:
        super().__init__(text)
        self.status, self.arrived = status, arrived


@dataclass(frozen=True)
class OutgoingRequest:
    """An HTTP request; the one of a notification is sent by POST."""

    url: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def signature(secret: str, at: int, body: bytes) -> str:
    """Return the value of Ems-Signature: the HMAC-SHA256 of ``at``, a dot and the body."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def send(request: OutgoingRequest, *, allow_private: bool, seconds: float) -> bytes:
    """Send the request and return the answer, at most MOST bytes; raises SendingFailed.

    ``seconds`` is the limit of the connecting, and then of all the rest.
    """
    parts = urlsplit(request.url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: _Plain
    arrived = False
    try:
        address = _address(host, port, allow_private=allow_private)
        if parts.scheme == "https":
            connection = _Tls(host, port, address, seconds)
        else:
            connection = _Plain(host, port, address, seconds)
        try:
            connection.connect()
            arrived = True
            connection.request(request.method, path, request.body or None, request.headers)
            response = connection.getresponse()
            answer = response.read(MOST)
        finally:
            connection.limit.cancel()
            connection.close()
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise SendingFailed(text, arrived=arrived) from error
    if connection.was_cut:  # what was read may be a part of the answer
        raise SendingFailed(f"no answer within {seconds:g} s")
    if 300 <= response.status < 400:
        raise SendingFailed(f"HTTP {response.status}: redirects are not followed", response.status)
    if not 200 <= response.status < 300:
        raise SendingFailed(f"HTTP {response.status} {response.reason}", response.status)
    return answer


def _address(host: str, port: int, *, allow_private: bool) -> str:
    """Return an address of the host; raises SendingFailed if one of them is not allowed."""
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for text in found:
        if not allow_private and not is_public(ipaddress.ip_address(text.partition("%")[0])):
            refusal = f"{text} is a private address, which is not allowed here"
            raise SendingFailed(refusal, arrived=False)
    return found[0]


def is_public(address: Address) -> bool:
    """Tell whether the address is one of the public Internet, of a single host."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside:
            return is_public(inside)
        if address not in GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


class _Plain(http.client.HTTPConnection):
    """A connection to ``address``, whatever the name of the host means by now.

    ``limit`` ends the connection after ``seconds``: bytes that drip end each wait for the next one.
    """

    def __init__(self, host: str, port: int, address: str, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self.limit = threading.Timer(seconds, self._cut)
        self.limit.daemon = True
        self.was_cut = False

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        self._open = self.sock
        self.limit.start()

    def _cut(self) -> None:
        self.was_cut = True
        with suppress(OSError):  # closed already
            socket.socket.shutdown(self._open, socket.SHUT_RDWR)


class _Tls(_Plain):
    """The same by TLS; the certificate must be one of the host's name."""

    default_port = 443

    def connect(self) -> None:
        super().connect()
        context = ssl.create_default_context()
        self.sock = self._open = context.wrap_socket(
            self.sock, server_hostname=self.host, do_handshake_on_connect=False
        )
        self.sock.do_handshake()
