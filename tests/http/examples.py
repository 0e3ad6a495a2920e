"""Runs the curl commands of a page, in order, and compares the answers with those of the page.

An answer must have the members of the page's one, of the same types. What is not a number, an
instant or another text that EMS makes up must be the same. Where such a value differs, later
commands and answers have the real one: ``81233`` of the page is the id of the message that was
really sent.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.docs.documents import FENCE
from tests.http.conftest import Api

HOST = "https://shop.example"
# Texts that EMS makes up: instants, receipts, cursors, tokens and their names, long hashes.
MADE_UP = re.compile(
    r"\d{4}-\d\d-\d\dT.*Z|\d+\.[\w-]+|[\w.:-]{16,}|ems_.*|http:.*|token:\w{8}", re.ASCII
)


@dataclass
class Example:
    """Is one curl command, with the answer that the page shows, if it shows one."""

    command: str
    answer: Any
    method: str = "GET"
    url: str = ""
    data: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        words = iter(shlex.split(self.command.replace("\\\n", " "))[1:])
        for word in words:
            if word in ("-X", "--request"):
                self.method = next(words)
            elif word in ("-H", "--header"):
                name, _colon, value = next(words).partition(":")
                self.headers[name] = value.strip()
            elif word == "--json":
                self.data = next(words)
                self.method = "POST" if self.method == "GET" else self.method
            elif word.startswith(HOST):
                self.url = word.removeprefix(HOST)
            elif word not in ("-s", "-i", "-N"):
                raise AssertionError(f"an option that examples.py does not know: {word}")


def examples(page: Path) -> Iterator[Example]:
    found = [(kind, text) for kind, text in FENCE.findall(page.read_text())]
    for number, (kind, text) in enumerate(found):
        if kind == "sh" and text.startswith("curl "):
            after = found[number + 1] if number + 1 < len(found) else ("", "")
            yield Example(text, json.loads(after[1]) if after[0] == "json" else None)


class Run:
    """Runs examples one after the other."""

    def __init__(self, api: Api, token: str) -> None:
        self._api, self._token = api, token
        self._real: dict[str, str] = {}

    def __call__(self, example: Example) -> None:
        headers = {**example.headers}
        if "$EMS_TOKEN" in headers.get("Authorization", ""):
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if example.data is None else self._with_real(example.data).encode()
        answer = self._api.call(example.method, self._with_real(example.url), data, **headers)
        text = f"{example.command}\n{answer.status_code} {answer.content.decode()}"
        if example.answer is None:
            assert answer.status_code < 300, text
            return
        problem = isinstance(example.answer, dict) and "code" in example.answer
        assert (answer.status_code >= 400) == problem, text
        self._compare(example.answer, answer.json(), text)

    def _with_real(self, text: str) -> str:
        for shown, real in self._real.items():
            text = re.sub(rf"(?<![\w.]){re.escape(shown)}(?![\w.])", lambda _: real, text)  # noqa: B023
        return text

    def _compare(self, shown: Any, real: Any, text: str) -> None:
        if isinstance(shown, dict):
            assert isinstance(real, dict), text
            assert shown.keys() == real.keys(), text
            for name, value in shown.items():
                self._compare(value, real[name], text)
        elif isinstance(shown, list):
            assert isinstance(real, list), text
            assert len(shown) == len(real), text
            for one, other in zip(shown, real, strict=True):
                self._compare(one, other, text)
        elif isinstance(shown, bool) or shown is None:
            assert shown is real, text
        elif isinstance(shown, int | float):
            assert isinstance(real, int | float), text
            if shown != real and shown > 1000:  # an id; small numbers mean themselves nowhere else
                self._real[str(shown)] = str(real)
        elif MADE_UP.fullmatch(shown):
            if shown != real:
                self._real[shown] = real
        else:
            assert self._with_real(shown) == real, text
