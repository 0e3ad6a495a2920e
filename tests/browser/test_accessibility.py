"""Every page in the worst case, looked at by axe: contrast, names of controls, structure."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from django.contrib.admin import site
from django.urls import reverse

from tests.browser.__main__ import LOOKS, pages
from tests.browser.chromium import Tab
from tests.browser.worst import make_worst

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),  # twenty pages, looked at twice
]

# What WCAG demands in the versions 2.0 to 2.2, levels A and AA.
DEMANDED = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.mark.parametrize("look", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(
    open_tab: Callable[..., Tab], look: str, rules_of_axe: str
) -> None:
    make_worst()
    tab = open_tab(bypass_csp=True, **LOOKS[look])  # axe sets styles while it measures
    broken = []
    for name, path in {**pages(), **_lists()}.items():
        tab.go(path)
        tab.ask(f"() => {{ {rules_of_axe} }}")
        found = tab.ask("tags => axe.run('#content', {runOnly: tags})", DEMANDED)
        broken += [f"{name}: {_told(rule)}" for rule in found["violations"]]
    assert not broken, "\n".join(broken)


def _lists() -> dict[str, str]:
    """Return the paths of the lists of all tables, by their names."""
    ours = [model._meta for model in site._registry if model._meta.app_label.startswith("ems")]
    return {
        str(meta.model_name): reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
        for meta in ours
    }


@pytest.fixture(scope="session")
def rules_of_axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def _told(rule: dict[str, Any]) -> str:
    nodes = rule["nodes"]
    return f"{rule['id']}, {len(nodes)}: {nodes[0]['html'][:200]} ({nodes[0]['failureSummary']})"
