"""Reads and checks the options of the sink "ems"."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from sparkjobs.config import EVERY, VARIABLE, Config
from sparkjobs.errors import BadOption
from streams.rules.body import BODY_TYPES
from streams.rules.dedup import MAX_WINDOW

# The longest name of an entry of the ledger, less what the sink puts before it.
MAX_APP_ID = 150

# What Spark itself gives to every sink.
OF_SPARK = {"path", "checkpointlocation", "queryname"}


@dataclass(frozen=True)
class SinkOptions:
    """The options, read and checked; docs/guides/spark-source-and-sink.md documents each."""

    config: str = ""
    namespace: str | None = None
    topic: str | None = None
    body_type: str | None = None
    dedup_window: timedelta | None = None
    transaction: tuple[str, int] | None = None
    of_table: bool = False  # of SQL, which has the columns of the source, too

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Return the options of a write; raises BadOption."""
        given = {name.lower(): value for name, value in options.items()}
        if unknown := set(given) - set(NAMES) - OF_SPARK:
            raise BadOption(f"unknown options: {', '.join(sorted(unknown))}")
        body_type = given.get("bodytype")
        if body_type not in (None, *BODY_TYPES):
            raise BadOption(f"bodyType must be json, text or bytes, not {body_type!r}")
        return cls(
            config=given.get("config") or os.environ.get(VARIABLE, ""),
            namespace=given.get("namespace"),
            topic=given.get("topic"),
            body_type=body_type,
            dedup_window=_window(given.get("dedupwindow")),
            transaction=_transaction(given.get("txnappid"), given.get("txnversion")),
        )

    def configuration(self) -> Config:
        """Return the configuration with the namespace to write to; raises BadConfig, BadOption."""
        config = Config.load(self.config)
        if self.namespace is not None:
            config = replace(config, namespace=self.namespace)
        if config.namespace == EVERY:
            raise BadOption("namespace=* is for reading: name the one to write to")
        return config


# The names that users write, in lower case.
NAMES = {"config", "namespace", "topic", "bodytype", "dedupwindow", "txnappid", "txnversion"}


def _window(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        window = timedelta(seconds=float(text))
    except (ValueError, OverflowError) as error:
        raise BadOption(f"dedupWindow must be a number of seconds, not {text!r}") from error
    if not timedelta(0) < window <= MAX_WINDOW:
        raise BadOption(f"dedupWindow must be more than 0 and at most {MAX_WINDOW}")
    return window


def _transaction(app_id: str | None, version: str | None) -> tuple[str, int] | None:
    if app_id is None and version is None:
        return None
    if not app_id or version is None or not version.isdecimal() or int(version) >= 2**63:
        raise BadOption("txnAppId and txnVersion are a name and a number from 0, both or none")
    if len(app_id) > MAX_APP_ID:
        raise BadOption(f"txnAppId has at most {MAX_APP_ID} characters")
    return app_id, int(version)
