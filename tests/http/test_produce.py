"""Sending over HTTP: what is committed when the answer comes, and what is refused."""

from __future__ import annotations

from streams.models import Message
from tests.http.conftest import Api, MakeToken


def test_a_message_that_was_answered_with_201_is_committed(
    transactional_db: None, api: Api, make_token: MakeToken
):
    api.token = make_token("send:orders")
    answer = api.post("/topics/orders/messages", {"body": {"n": 1}, "key": "A7", "tag": "paid"})
    assert answer.status_code == 201, answer.content
    sent = answer.json()
    row = Message.objects.get(pk=sent["message_id"])
    assert (bytes(row.body), row.key, row.tag) == (b'{"n":1}', "A7", "paid")
    assert sent == {"message_id": row.pk, "topic": "orders", "partition": 0, "duplicate": False}
