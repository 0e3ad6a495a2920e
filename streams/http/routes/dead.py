"""Lists, redrives and discards dead letters."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Dead letters"])
