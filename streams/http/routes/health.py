"""Says whether EMS is ready, and its metrics."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Health"])
