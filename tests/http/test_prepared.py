"""Two-phase messages over HTTP: rights, states, keys in paths, and calls that are repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from streams import Decision
from streams.http import threads
from streams.http.routes import prepared
from streams.models import Message, PreparedRow
from streams.testing import checkback as check
from tests.http.conftest import Api, MakeToken
from tests.preparing import CHECKER, answering, endpoint, pass_time, sent_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

RIGHTS = ("prepare:shop", "send:orders", f"check:{CHECKER}")


@pytest.fixture
def shop(api: Api, make_token: MakeToken, clean_registry: None) -> Api:
    """Return a client that may prepare messages of the business "shop" for "orders"."""
    answering(Decision.UNKNOWN)
    api.token = make_token(*RIGHTS)
    return api


def wanted(biz_key: Any = "A7", **more: Any) -> dict[str, Any]:
    given = {"biz": "shop", "biz_key": biz_key, "topic": "orders", "checker": CHECKER}
    return {**given, "body": {"number": 7}, **more}


def at(biz_key: str, verb: str = "") -> str:
    return f"/prepared/shop/{quote(biz_key, safe='')}{verb}"


def test_a_message_is_prepared_committed_and_shown(shop: Api) -> None:
    answer = shop.post("/prepared", wanted(key="k", tag="paid", check_after=30))
    assert answer.status_code == 201, answer.content
    held = answer.json()
    assert (held["state"], held["created"], held["message_id"]) == ("prepared", True, None)
    assert held["next_check_at"] == shop.get(at("A7")).json()["next_check_at"] is not None
    again = shop.post("/prepared", wanted(key="k", tag="paid", check_after=30))
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert PreparedRow.objects.get().producer.startswith("http:")
    for _time in range(2):
        answer = shop.post(at("A7", "/commit"), {})
        assert (answer.status_code, answer.json()["state"]) == (200, "committed")
    assert sent_keys() == ["A7"]
    shown = shop.get(at("A7")).json()
    assert shown["message_id"] == Message.objects.get().pk
    assert shown["decided_by"] == f"token:{(shop.token or '')[4:12]}"
    assert shown["next_check_at"] is None


def test_what_is_decided_is_not_decided_otherwise(shop: Api) -> None:
    shop.post("/prepared", wanted("A7"))
    shop.post("/prepared", wanted("A8"))
    assert shop.post(at("A7", "/rollback")).json()["state"] == "rolled back"
    assert shop.post(at("A8", "/commit")).status_code == 200
    refused = shop.post(at("A7", "/commit"))
    assert (refused.status_code, refused.json()["code"]) == (409, "already_rolled_back")
    refused = shop.post("/prepared", wanted("A7"))
    assert (refused.status_code, refused.json()["code"]) == (409, "already_rolled_back")
    assert shop.post("/prepared", wanted("A8")).json()["state"] == "committed"
    refused = shop.post(at("A8", "/rollback"))
    assert (refused.status_code, refused.json()["code"]) == (409, "already_committed")
    assert sent_keys() == ["A8"]


def test_what_is_not_there_or_is_other_content_is_said(shop: Api) -> None:
    for answer in (shop.get(at("A7")), shop.post(at("A7", "/commit"), {})):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_prepared")
    shop.post("/prepared", wanted())
    refused = shop.post("/prepared", wanted(body={"number": 8}))
    assert (refused.status_code, refused.json()["code"]) == (409, "prepared_conflict")
    assert shop.post("/prepared", wanted(url="https://elsewhere/")).status_code == 422
    assert PreparedRow.objects.count() == 1


@pytest.mark.parametrize("name", [".", ".."])
def test_what_is_another_place_in_a_url_is_no_name(
    shop: Api, make_token: MakeToken, name: str
) -> None:
    shop.token = make_token("prepare:*", "send:orders", "check:*", "consume:*/*", "manage")
    for answer in (
        shop.post("/prepared", wanted(name)),
        shop.post("/prepared", {**wanted(), "biz": name}),
        shop.post("/topics", {"name": name}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_name")


@pytest.mark.parametrize("key", ["a/b", "ä ö", "100%", "a%2Fb", "x/commit", "x/rollback", "?#&"])
def test_a_key_may_have_any_character(shop: Api, key: str) -> None:
    assert shop.post("/prepared", wanted(key)).status_code == 201
    assert shop.get(at(key)).json()["biz_key"] == key
    assert shop.post(at(key, "/commit"), {}).json()["state"] == "committed"
    assert sent_keys() == [key]


@pytest.mark.parametrize("left_out", range(3))
def test_each_of_the_three_rights_is_needed(
    api: Api, make_token: MakeToken, left_out: int, clean_registry: None
) -> None:
    answering(Decision.UNKNOWN)
    rights = [one for number, one in enumerate(RIGHTS) if number != left_out]
    api.token = make_token(*rights, "prepare:bank", "send:mails", "check:bank.order")
    refused = api.post("/prepared", wanted())
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert not PreparedRow.objects.exists()


def test_a_token_decides_and_sees_its_own_businesses_alone(
    shop: Api, make_token: MakeToken
) -> None:
    shop.post("/prepared", wanted())
    other = make_token("prepare:bank")
    for answer in (
        shop.get(at("A7"), token=other),
        shop.post(at("A7", "/commit"), {}, token=other),
        shop.post(at("A7", "/rollback"), {}, token=other),
        shop.get("/prepared?biz=shop", token=other),
    ):
        assert answer.status_code == 403
    assert shop.get("/prepared", token=other).json() == {"items": [], "next": None, "away": []}
    assert PreparedRow.objects.get().state == "PREPARED"


def test_an_endpoint_that_the_token_may_name_is_asked(shop: Api, make_token: MakeToken) -> None:
    endpoint("http://127.0.0.1:1/", name="billing", enabled=False)
    refused = shop.post("/prepared", wanted(checker="billing"))
    assert refused.status_code == 403
    token = make_token("prepare:shop", "send:orders", "check:bill*")
    assert shop.post("/prepared", wanted(checker="billing"), token=token).status_code == 201
    refused = shop.post("/prepared", wanted("A8", checker="bill"), token=token)
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_checker")


def test_a_check_decides_what_the_caller_did_not(shop: Api, make_token: MakeToken) -> None:
    answering(Decision.COMMIT, name="shop.late")
    shop.token = make_token("prepare:shop", "send:orders", "check:shop.*")
    shop.post("/prepared", wanted(checker="shop.late"))
    pass_time(2)
    check()
    shown = shop.get(at("A7")).json()
    assert (shown["state"], shown["decided_by"]) == ("committed", "check:shop.late")


def test_lists_go_on_where_they_stopped(shop: Api) -> None:
    for number in range(7):
        shop.post("/prepared", wanted(f"A{number}"))
    for number in (1, 4):
        shop.post(at(f"A{number}", "/commit"), {})
    assert keys(shop, "/prepared?limit=3") == [[0, 1, 2], [3, 4, 5], [6]]
    assert keys(shop, "/prepared?limit=2&state=prepared") == [[0, 2], [3, 5], [6]]
    assert keys(shop, "/prepared?limit=2&state=prepared&biz=shop") == [[0, 2], [3, 5], [6]]
    assert keys(shop, "/prepared?limit=1&state=committed&biz=shop") == [[1], [4]]
    assert keys(shop, "/prepared?limit=9&state=committed") == [[1, 4]]
    assert keys(shop, "/prepared?state=manual") == [[]]
    refused = shop.get("/prepared?after=rubbish")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert shop.get("/prepared?limit=1001").status_code == 422


def keys(api: Api, path: str) -> list[list[int]]:
    """Return the numbers of the keys, page by page; an empty page at the end is left out."""
    pages: list[list[int]] = []
    after = ""
    while True:
        page = api.get(path + after).json()
        found = [int(one["biz_key"][1:]) for one in page["items"]]
        if found or not pages:
            pages.append(found)
        if page["next"] is None:
            return pages
        after = f"&after={page['next']}"


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_key_that_another_transaction_writes_is_waited_for_some_seconds(
    shop: Api, second_connection: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LOCK_SECONDS", 1)
    monkeypatch.setattr(prepared, "PATIENCE", 1.0)
    assert shop.post("/prepared", wanted()).status_code == 201
    other = second_connection()
    other.execute("BEGIN")
    other.execute("DELETE FROM ems_prepared")
    began = time.monotonic()
    answer = shop.post("/prepared", wanted())
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert time.monotonic() - began < 15  # prepare() goes on for 30 s, the server waits for 50
    other.execute("ROLLBACK")
    assert shop.post("/prepared", wanted()).status_code == 200
