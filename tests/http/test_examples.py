"""The guide of the HTTP API: its commands run, its tables are those of the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.urls import include

from streams import Decision, consumer, errors
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.http.problems import CODES, codes
from streams.models import Verb
from streams.operate.topics import create
from tests.docs.documents import DOCS, section, table
from tests.http.conftest import Api, MakeToken
from tests.http.contract import FILE, every_right, written
from tests.http.examples import Run, examples
from tests.preparing import answering

PAGE = DOCS / "guides" / "http.md"
HTTP = Path(errors.__file__).parent / "http"


def test_the_commands_of_the_guide_do_what_it_says(
    transactional_db: None, api: Api, make_token: MakeToken, clean_registry: None
) -> None:
    # What only a Django project can have: a check-back, and a group of a consumer.
    answering(Decision.UNKNOWN)
    consumer("orders", group="stock")(lambda message: None)
    create("orders", 1, "default")
    subscribe(registry.find("orders", "stock"), "default")  # type: ignore[arg-type]
    run = Run(api, make_token(*every_right()))
    found = list(examples(PAGE))
    assert len(found) >= 5
    for example in found:
        run(example)


def test_the_openapi_file_is_that_of_the_code() -> None:
    """A change of the contract is seen in review: python -m tests.http.contract writes it anew."""
    assert FILE.read_text() == written()


def test_without_its_extra_the_api_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "streams.http.urls")
    with pytest.raises(ImproperlyConfigured, match=r"pip install 'django-ems\[api\]'"):
        include("streams.http.urls")


def test_the_rights_are_those_of_the_table() -> None:
    assert set(table(PAGE, "Tokens")) == set(Verb.values)


def test_every_error_has_the_status_of_the_table() -> None:
    """And each code that is written somewhere in the API is in one of the tables."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section(PAGE, "Errors"), re.MULTILINE)
    shown = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    shown.pop("dedup_key")
    own = {(str(status), code) for status, some in CODES.items() for code in some}
    real = {code: status for status, some in codes().items() for code in some}
    for _status, code in own:
        del real[code]
    assert {code: real[code] for code in shown} == shown
    by_status = {status for status in real.values() if status != 409}
    assert {code for code, status in real.items() if status in by_status} <= set(shown)
    written = re.compile(r'Problem\(\s*(\d+), "(\w+)"')
    of_code = {found for path in HTTP.rglob("*.py") for found in written.findall(path.read_text())}
    told = {(status, code) for code, status in table(PAGE, "Errors").items() if code.isidentifier()}
    assert of_code <= own <= told
