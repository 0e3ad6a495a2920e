"""Reads the endpoints from the OpenAPI file, and makes a request that fits each.

``python -m tests.http.contract`` writes docs/openapi.json anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "emsproject.settings")
    django.setup()

from streams.http.app import schema
from streams.models import Verb

FILE = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Endpoint:
    """Is one method of one path. ``right`` is {"verb", "on"}; None: it is open to all."""

    method: str
    path: str
    right: dict[str, str] | None
    operation: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def url(self, **values: str) -> str:
        """Return the path below /ems, with a value for each of its parameters."""
        path = self.path
        for parameter in self.operation["parameters"]:
            if parameter["in"] == "path":
                name = parameter["name"]
                number = parameter["schema"].get("type") == "integer"
                value = values.get(name, "1" if number else "orders")
                path = path.replace("{" + name + "}", value)
        return "/ems" + path

    @property
    def place(self) -> str | None:
        """Return the place of the right that ``url()`` names; None: the request says it."""
        on = (self.right or {}).get("on")
        return on.format_map(_Orders()) if on else None


class _Orders(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "orders"


def endpoints() -> list[Endpoint]:
    return [
        Endpoint(method.upper(), path, operation["x-right"], operation)
        for path, methods in schema()["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]


def every_right() -> list[str]:
    """Return rights for everything."""
    return [f"{verb}:*" for verb in Verb.values]


def written() -> str:
    """Return the text of docs/openapi.json."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written())
