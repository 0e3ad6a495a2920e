"""The shop whose pages the tests look at: what its processes run, and how a page is read.

Mail handles every order. Billing refuses a stolen card, and does not try it again.
"""

from __future__ import annotations

import os
from typing import Any

from django.urls import reverse

from streams import consumer
from tests.browser.chromium import Tab
from tests.hostapp.models import Handled

STOLEN = "stolen"
SHOP, REPAIRED = "EMS_SHOP", "repaired"  # in the environment of a process: billing takes all cards

CONSUMER = """
from django.core.management import call_command
from tests.browser.shop import open_shop
open_shop()
print("open")
call_command("ems_consume", "--start", "earliest", *sys.argv[1:])
"""

# In a loop, so that it is under way while a page is read; each tenth card is a stolen one.
PRODUCER = """
import itertools, time
from streams import send
for n in itertools.count():
    send("orders", {"n": n, "card": "stolen" if n % 10 == 0 else "good"}, key=f"c{n % 50}")
    print("sent", n + 1)
    time.sleep(0.002)
"""


class CardRefused(Exception):
    """Says that the bank refuses the card."""


def open_shop() -> None:
    """Register the consumers."""
    consumer("orders", group="mail", batch=20)(mail)
    consumer("orders", group="billing", max_retries=0)(bill)


def mail(messages: Any) -> None:
    Handled.objects.bulk_create(_handled(message) for message in messages)


def bill(message: Any) -> None:
    if message.body["card"] == STOLEN and os.environ.get(SHOP) != REPAIRED:
        raise CardRefused(f"card of order {message.body['n']}")
    _handled(message).save()


def _handled(message: Any) -> Handled:
    return Handled(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value=str(message.body["n"]),
    )


def page(name: str, *args: int) -> str:
    return reverse(f"admin:ems_monitoring_overview_{name}", args=args)


def figure(tab: Tab, label: str) -> str:
    """Return the large figure with this label."""
    return tab.text(f"{_figure(label)} >> p.ems-figure-value")


def wait_for_figure(tab: Tab, label: str, value: str) -> None:
    tab.wait(f'{_figure(label)} >> p.ems-figure-value >> text="{value}"')


def _figure(label: str) -> str:
    return f'.ems-figure:has(h2:has-text("{label}"))'


CELLS = """
(name) => {
    const rows = [...document.querySelectorAll("table.ems-grid tbody tr")];
    const title = (row) => row.querySelector("th")?.innerText.split("\\n")[0].trim();
    const cells = rows.find((row) => title(row) === name).querySelectorAll("td[data-label]");
    return Object.fromEntries([...cells].map((cell) => [cell.dataset.label, cell.innerText]));
}
"""


def row(tab: Tab, name: str) -> dict[str, str]:
    """Return the cells of the row with this name, by the names of their columns."""
    found: dict[str, str] = tab.ask(CELLS, name)
    return {label: text.split("\n")[0].strip() for label, text in found.items()}


def number(text: str) -> float:
    """Return the number that is shown: "1,234", "12.3/s"."""
    return float(text.removesuffix("/s").replace(",", ""))
