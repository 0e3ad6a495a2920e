"""The rules and the board that EMS ships name only what its code exports."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.metrics.catalogue import ALL
from tests.packages import Programs, Unavailable

FOLDER = Path(__file__).resolve().parents[2] / "monitoring"
RULES, RULES_TEST = FOLDER / "prometheus/rules.yml", FOLDER / "prometheus/rules_test.yml"
BOARD = FOLDER / "grafana/ems.json"

EXPORTED = {series: metric for metric in ALL.values() for series in metric.exported}
SELECTOR = re.compile(r"\b(ems_\w+)\b\s*(?:\{([^}]*)\})?")
# Added by Prometheus to every series.
TARGET = {"instance", "job"}


def rules() -> dict[str, str]:
    """Return name and text of each rule: the file is read as text, for want of a YAML parser."""
    found = re.split(r"^ +- alert: (\w+)$", RULES.read_text(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def of_the_rules() -> Iterator[tuple[str, str, str]]:
    for name, text in rules().items():
        expression, told = re.split(r"^ +(?:for|labels):", text, maxsplit=1, flags=re.MULTILINE)
        yield name, expression.partition("expr:")[2], told


def of_the_board() -> Iterator[tuple[str, str, str]]:
    board: dict[str, Any] = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["definition"], ""


EXPRESSIONS = [*of_the_rules(), *of_the_board()]


def problems(expression: str, told: str = "") -> list[str]:
    """Return what is wrong with an expression, and with the labels that its text shows."""
    found: list[str] = []
    known: set[str] = set(TARGET)
    for name, matchers in SELECTOR.findall(expression):
        if name not in EXPORTED:
            found.append(f"{name} is not exported")
            continue
        labels = EXPORTED[name].all_labels
        known |= labels
        matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
        found += [f"{name} has no label {one}" for one in matched if one not in labels]
    grouped = ",".join(re.findall(r"\bby\s*\(([^)]*)\)", expression))
    shown = re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", told)
    named = re.findall(r"label_values\(.*,\s*(\w+)\)", expression)
    wanted = [*filter(None, map(str.strip, grouped.split(","))), *shown, *named]
    return found + [f"no metric has the label {one}" for one in wanted if one not in known]


@pytest.mark.parametrize(
    ("where", "expression", "told"),
    EXPRESSIONS,
    ids=[f"{row[0]}-{n}" for n, row in enumerate(EXPRESSIONS)],
)
def test_every_expression_names_what_is_exported(where: str, expression: str, told: str) -> None:
    assert SELECTOR.search(expression), expression
    assert not problems(expression, told)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("ems_group_lags", ""),
        ('ems_group_lag_messages{tenant="a"}', ""),
        ("sum by (key) (rate(ems_claims_total[5m]))", ""),
        ("ems_up", "{{ $labels.topic }}"),
        ("label_values(ems_up, topic)", ""),
        ("ems_send_seconds > 1", ""),  # a histogram has only _bucket, _sum and _count
    ],
)
def test_what_is_not_exported_is_noticed(expression: str, told: str) -> None:
    assert problems(expression, told)


def test_the_board_shows_every_metric_that_is_no_information() -> None:
    shown = {
        name for _w, expression, _t in of_the_board() for name, _ in SELECTOR.findall(expression)
    }
    hidden = {name for name, metric in ALL.items() if not shown & set(metric.exported)}
    assert hidden == {
        *("ems_topic_info", "ems_server_info", "ems_consumer_info"),
        *("ems_log_messages", "ems_next_delayed_seconds", "ems_sequencer_messages_total"),
    }


def test_the_board_is_one_that_grafana_imports() -> None:
    board = json.loads(BOARD.read_text())
    assert (board["uid"], board["schemaVersion"]) == ("ems-overview", 39)
    assert [one["name"] for one in board["templating"]["list"]] == [
        *("datasource", "database", "topic", "group")
    ]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    cells = [panel["gridPos"] for panel in board["panels"]]
    assert all(cell["x"] + cell["w"] <= 24 for cell in cells)


def test_every_rule_has_a_case_in_which_it_fires() -> None:
    fires = set(re.findall(r'alertname="(\w+)"', RULES_TEST.read_text()))
    assert fires == set(rules())


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        program = Programs.find("prometheus").program("promtool")
    except Unavailable as reason:
        pytest.skip(str(reason))
    return subprocess.run([program, *words], capture_output=True, text=True)


def test_the_rules_are_valid_and_fire_when_they_should() -> None:
    for words in (("check", "rules", str(RULES)), ("test", "rules", str(RULES_TEST))):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("threshold", "other"),
    [
        ("> 0.05", "> 0.5"),
        ("== 0 and ems_group_lag", "== 9 and ems_group_lag"),
        ("oldest_seconds > 30", "oldest_seconds > 1e9"),
    ],
)
def test_a_rule_that_does_not_fire_is_noticed(tmp_path: Path, threshold: str, other: str) -> None:
    text = RULES.read_text()
    assert text.count(threshold) == 1
    (tmp_path / "rules.yml").write_text(text.replace(threshold, other))
    (tmp_path / "rules_test.yml").write_text(RULES_TEST.read_text())
    assert promtool("test", "rules", str(tmp_path / "rules_test.yml")).returncode != 0
