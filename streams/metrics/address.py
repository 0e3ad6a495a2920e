"""Parses the address on which metrics are shown."""

from __future__ import annotations

from argparse import ArgumentTypeError

LOOPBACK = "127.0.0.1"
# Where a consumer shows its metrics, and ems_metrics those of the tables.
CONSUMER, TABLES = f"{LOOPBACK}:9464", f"{LOOPBACK}:9465"


def address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``PORT``; without a host, only this one connects."""
    host, _colon, port = text.rpartition(":")
    if not (port.isdecimal() and 0 <= int(port) <= 65535):
        raise ArgumentTypeError(f"say PORT or HOST:PORT, such as {CONSUMER}")
    return host.strip("[]") or LOOPBACK, int(port)
