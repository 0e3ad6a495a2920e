"""Dead letters as CSV: what was chosen, in one file, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.urls import reverse

from streams.admin.verbs import export
from streams.body import encode
from streams.models import DeadMessage
from streams.models.with_body import stored
from tests.admin.conftest import action

pytestmark = pytest.mark.django_db

LETTERS = reverse("admin:ems_deadmessage_changelist")


def exported(client: Any, *pks: int, **more: str) -> list[list[str]]:
    response = client.post(LETTERS, action("export", *pks, **more))
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    text = b"".join(response.streaming_content).decode()
    return list(csv.reader(io.StringIO(text)))


def copies(letter: DeadMessage, count: int) -> list[int]:
    made = []
    for _ in range(count):
        letter.pk = None
        letter.save(force_insert=True)
        made.append(letter.pk)
    return made


def test_a_letter_is_a_line_with_its_place_error_and_body(world, as_role):
    letter = world.letter
    head, line = exported(as_role("operator"), letter.pk)
    assert tuple(head) == export.COLUMNS
    found = dict(zip(head, line, strict=True))
    assert found["id"] == str(letter.pk)
    assert (found["topic"], found["group"]) == (letter.group.topic.name, letter.group.name)
    assert (found["offset"], found["error"]) == (str(letter.offset), letter.error)
    assert found["body"] == bytes(letter.body).decode()
    assert found["died_at"] == letter.died_at.isoformat()


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_is_no_formula(world, as_role, begin):
    text = f"{begin}HYPERLINK(1)"
    DeadMessage.objects.filter(pk=world.letter.pk).update(
        key=text, tag=text, error=text, body=text.encode(), body_type="text"
    )
    head, line = exported(as_role("operator"), world.letter.pk)
    found = dict(zip(head, line, strict=True))
    assert [found[name] for name in ("key", "tag", "error", "body")] == [f"'{text}"] * 4


def test_all_that_match_are_exported_the_newest_first_up_to_a_limit(
    world, as_role, monkeypatch, django_assert_max_num_queries
):
    DeadMessage.objects.exclude(pk=world.letter.pk).delete()
    made = [world.letter.pk, *copies(world.letter, 6)]
    monkeypatch.setattr(export, "PAGE", 2)
    client = as_role("operator")
    every = exported(client, made[0], select_across="1")
    assert [line[0] for line in every[1:]] == [str(pk) for pk in reversed(made)]
    monkeypatch.setattr(export, "AT_MOST", 3)
    *some, note = exported(client, made[0], select_across="1")[1:]
    assert [line[0] for line in some] == [str(pk) for pk in made[:-4:-1]]
    assert note == ["There are more than 3: narrow the list."]


def test_who_may_not_see_bodies_exports_nothing(world, as_role):
    client = as_role("viewer")
    response = client.post(LETTERS, action("export", world.letter.pk))
    assert response["Content-Type"].startswith("text/html")
    assert not response.streaming
    assert exported(as_role("viewer", "ems.view_body"), world.letter.pk)


def test_of_a_compressed_body_the_beginning_is_in_the_line(world, as_role):
    letter = world.letter
    raw = encode({"items": ["Zoë"] * 3000})[0]
    DeadMessage.objects.filter(pk=letter.pk).update(size=len(raw), **stored(raw, "json"))
    head, line = exported(as_role("operator"), letter.pk)
    found = dict(zip(head, line, strict=True))
    assert found["body"] == raw[: export.BODY_BYTES].decode(errors="replace")
    assert (found["body_type"], found["size"]) == ("json", str(len(raw)))


def test_a_letter_with_a_damaged_body_is_a_line_too(world, as_role):
    pks = [world.letter.pk, *copies(world.letter, 1)]
    damage = {"body": b"no zlib", "body_type": "zjson", "size": 5000}
    DeadMessage.objects.filter(pk=pks[1]).update(**damage)
    head, *lines = exported(as_role("operator"), *pks)
    bodies = [dict(zip(head, line, strict=True))["body"] for line in lines]
    assert bodies[0].startswith("The stored body is damaged")
    assert bodies[1]
    assert len(bodies) == 2
