"""The figures of the worst case: what comes in, what is done, and what has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

MINUTE = timedelta(minutes=1)
DEAD = 5_803
BEHIND = 2_000_000
END = 5_000_000
# Topic: partitions, messages of its log, messages a second.
TOPICS = {
    "orders": (3, END, 640.0),
    "payments": (2, 1_800_000, 210.0),
    "mails": (1, 920_000, 95.0),
    "invoices": (1, 310_000, 12.0),
    "page-views": (4, 48_000_000, 2400.0),
    "stock": (1, 75_000, 0.4),
}
# Group: topic, messages behind, messages a second that it finishes, consumers, options.
GROUPS: dict[str, tuple[str, int, float, int, dict[str, Any]]] = {
    "billing": ("orders", BEHIND, 3.1, 2, {}),
    "exports": ("orders", BEHIND - 999, 720.0, 3, {}),
    "shipping": ("orders", 61_400, 0.0, 1, {"ordered": True}),
    "ledger": ("payments", 340, 208.0, 4, {}),
    "fraud-scores": ("payments", 88_000, 260.0, 6, {}),
    "smtp": ("mails", 12, 95.2, 2, {}),
    "pdf": ("invoices", 5_210, 0.0, 0, {"paused": True}),
    "clicks": ("page-views", 900, 2398.0, 8, {}),
    "replenish": ("stock", 0, 0.4, 1, {}),
}
# As many more that have nothing to do.
QUIET = 41
ERRORS = ("shop.payments.CardDeclined", "shop.payments.BankTimeout", "KeyError")
