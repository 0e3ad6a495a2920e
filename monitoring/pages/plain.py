"""Writes figures as JSON: durations in seconds, instants in UTC."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder


class PlainEncoder(DjangoJSONEncoder):
    """A JSON encoder of dataclasses, durations (in seconds) and what Django's encoder takes."""

    def default(self, o: Any) -> Any:
        if isinstance(o, timedelta):
            return o.total_seconds()
        if is_dataclass(o) and not isinstance(o, type):
            return {field.name: getattr(o, field.name) for field in fields(o)}
        return super().default(o)
