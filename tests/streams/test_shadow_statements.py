"""What a statement writes is told by table, column and value, whatever its form."""

from __future__ import annotations

from typing import Any

import pytest

from streams.operate.shadow.statement import written
from streams.operate.shadow.tokens import first_words
from streams.operate.shadow.values import Values

pytestmark = pytest.mark.any_database

TEXT = "it's 100%% `a`, (b)"

STATEMENTS: list[tuple[str, Any, list[str]]] = [
    (
        "INSERT INTO `shop_order` (`number`, `note`) VALUES (%s, %s), (%s, NULL)",
        [1, "x", 2],
        ["INSERT shop_order: note='x', number=1", "INSERT shop_order: note=NULL, number=2"],
    ),
    (
        'INSERT INTO "t" ("a") VALUES (%s) ON CONFLICT("a") DO UPDATE SET "a" = %s RETURNING "id"',
        ["x", "y"],
        ["INSERT t: a='x', on conflict=ON CONFLICT(a) DO UPDATE SET a = 'y'"],
    ),
    (
        "insert ignore into db.t (a, b) values (UTC_TIMESTAMP(6), COALESCE(%s, x'0a'))",
        (None,),
        ["INSERT t: a=UTC_TIMESTAMP(6), b=COALESCE (NULL, x'0a')"],
    ),
    (
        "UPDATE `t` SET `b` = `t`.`b` + %s, `a` = %s WHERE (`t`.`id` IN (%s, %s) AND `c` <> %s)",
        [1, TEXT, 2, 3, b"\x00"],
        [f"UPDATE t: a={TEXT!r}, b=b + 1, where=(id IN (2, 3) AND c <> x'00')"],
    ),
    (
        "UPDATE t SET a = CASE WHEN (id = %s) THEN %s ELSE NULL END WHERE id = %s",
        [1, "x", 1],
        ["UPDATE t: a=CASE WHEN (id = 1) THEN 'x' ELSE NULL END, where=id = 1"],
    ),
    ("DELETE FROM `t`", None, ["DELETE t: "]),
    ("DELETE FROM t WHERE a = 'it''s' AND b = %s", [1], ["DELETE t: where=a = 'it''s' AND b = 1"]),
    (
        "INSERT INTO t SELECT * FROM u WHERE a = %s",
        [1],
        ["INSERT t: statement=INSERT INTO t SELECT * FROM u WHERE a = %s, 1=1"],
    ),
    ("CALL settle(%s)", [1], ["CALL : statement=CALL settle(%s), 1=1"]),
    (
        "UPDATE t SET a = %(a)s",
        {"a": 1},
        ["UPDATE t: statement=UPDATE t SET a = %(a)s, a=1"],
    ),
    (
        "INSERT INTO t (a) VALUES (%s",
        [1],
        ["INSERT t: statement=INSERT INTO t (a) VALUES (%s, 1=1"],
    ),
    ("UPDATE t", [], ["UPDATE t: statement=UPDATE t"]),
]


@pytest.mark.parametrize(("statement", "parameters", "expected"), STATEMENTS)
def test_a_statement_is_told_by_what_it_writes(
    statement: str, parameters: Any, expected: list[str]
) -> None:
    assert [str(one) for one in written(statement, parameters, Values().text)] == expected


def test_a_new_row_is_named_where_its_id_stands_and_nowhere_else() -> None:
    values = Values()
    values.inserted("auth_group", [7])
    values.inserted("hostapp_order", [7])
    assert values.text("auth_group_permissions", "group_id", 7) == "<auth_group 1>"
    assert values.text("auth_group_permissions", "permission_id", 7) == "7"
    assert values.text("hostapp_order", "id", 7) == "<hostapp_order 1>"
    assert values.text("hostapp_handled", "partition", 7) == "7"
    assert values.text("unknown", "order_id", 7) == "<hostapp_order 1>"
    assert values.json("order_ids", [7, 8]) == '["<hostapp_order 1>", 8]'
    assert values.json("count", 7) == "7"


def test_long_values_are_cut_and_still_told_apart() -> None:
    one, two = (Values().text("t", "a", "x" * 1000 + end) for end in "12")
    assert one != two
    assert len(one) < 200


def test_the_first_words_are_found_behind_comments() -> None:
    assert first_words("/* a */ -- b\n ( select 1)") == ["SELECT", "1"]
    assert first_words("create  temporary table t (a int)") == ["CREATE", "TEMPORARY"]
    assert first_words("") == []
