"""Checks and shows the URLs that operators enter; what is behind the host may be secret."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_address(url: str) -> bool:
    """Tell whether it is an http or https URL with a host, and without user and password."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and not parts.username
        _port = parts.port
    except ValueError:
        return False
    return bool(right) and url.isascii() and not any(c.isspace() for c in url)


def host_of(url: str) -> str:
    """Return where it leads to, without path and query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/…"
