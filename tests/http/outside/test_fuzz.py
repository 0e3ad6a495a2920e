"""Requests made up from the OpenAPI file, right and wrong ones: never a 500, never a page."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as how
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from streams.http.app import schema
from tests.http.conftest import Api, MakeToken
from tests.http.contract import METHODS, every_right

OPERATIONS = {
    f"{method.upper()} {path}": (path, method)
    for path, methods in schema()["paths"].items()
    for method in methods
    if method in METHODS
}
MODES = {"right": GenerationMode.POSITIVE, "wrong": GenerationMode.NEGATIVE}

# Each commit tries this one, and the exhaustive tier all.
SEND = "POST /v1/topics/{topic}/messages"
EVERY = pytest.mark.exhaustive

few = [pytest.param(SEND, mode, 3, id=f"{SEND}-{mode}-few") for mode in MODES]
many = [
    pytest.param(name, mode, 100, id=f"{name}-{mode}", marks=EVERY)
    for name in OPERATIONS
    for mode in MODES
]


@pytest.mark.parametrize(("operation", "mode", "examples"), [*few, *many])
def test_no_request_is_answered_with_500_or_a_page(
    api: Api, make_token: MakeToken, operation: str, mode: str, examples: int
) -> None:
    api.token = make_token(*every_right())
    path, method = OPERATIONS[operation]
    cases = schemathesis.openapi.from_dict(schema())[path][method]

    @how(
        max_examples=examples,
        derandomize=examples < 10,  # a commit is not the place to find something by chance
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases.as_strategy(generation_mode=MODES[mode]))
    def refuses_or_answers(case: Any) -> None:
        answer = api.client.generic(
            case.method,
            f"/ems{case.formatted_path}",
            _body(case.body),
            "application/json",
            secure=True,
            query_params=_query(case.query),
            headers={**_headers(case.headers), "Authorization": f"Bearer {api.token}"},
        )
        assert answer.status_code < 500, answer.content
        kind = answer.get("Content-Type", "")
        if answer.status_code >= 400:
            assert kind == "application/problem+json"
            assert answer.json()["code"]
        elif answer.status_code != 204:
            assert kind.partition(";")[0] in ("application/json", "text/plain")

    with suppress(Unsatisfiable):  # where nothing can be given, nothing can be wrong
        refuses_or_answers()


def _body(body: Any) -> bytes:
    if isinstance(body, schemathesis.core.NotSet):
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, dict) and "hold" in body:
        body["hold"] = 0  # nothing to wait for
    return json.dumps(body).encode()


def _query(query: Any) -> dict[str, Any]:
    return {**(query or {}), **({"hold": "0"} if "hold" in (query or {}) else {})}


def _headers(headers: Any) -> dict[str, str]:
    # A bad Host is refused by Django, with a page, before EMS has the request.
    return {name: str(value) for name, value in (headers or {}).items() if name.lower() != "host"}
