"""Reads through ConnectorX where it is installed: rows become Arrow columns, not Python objects.

It knows a part of what the MySQL client can do. So it reads only where the option file says no
more than an address and an account, and where nothing would be encrypted: it does not encrypt.
Elsewhere, and without it, mysqlclient reads the same rows.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructType

from sparkjobs.config import MYSQL, REPLICA, Config
from sparkjobs.database import WRITE_SECONDS
from sparkjobs.source.arrow import BATCH_ROWS, Arrays, type_of

PLAIN = {"host", "port", "user", "password", "database", "ssl_mode", "connect_timeout"}
LOOPBACK = ("127.0.0.1", "::1")
# Rows of a batch with bodies: a task has a limited number of bytes, see tasks.py.
ROWS_WITH_BODIES = 1000


def address(config: Config) -> str | None:
    """Return the URL of where messages are read; None where ConnectorX is not to be used."""
    if config.vendor != MYSQL or find_spec("connectorx") is None:
        return None
    text = Path(config.path).read_text()
    if any(line.startswith("!") for line in text.splitlines()):  # includes another file
        return None
    parser = configparser.ConfigParser(allow_no_value=True, interpolation=None, strict=False)
    parser.read_string(text)
    parts = ["client", REPLICA] if config.replica else ["client"]
    items = [item for part in parts for item in parser.items(part)]
    found = {name.replace("-", "_"): value or "" for name, value in items}
    # Quotes, comments and escapes have rules that only the client knows.
    plain = not any(mark in value for value in found.values() for mark in "\"'#;\\")
    unencrypted = found.get("host") in LOOPBACK or found.get("ssl_mode", "").upper() == "DISABLED"
    if set(found) - PLAIN or not plain or not unencrypted or not found.get("host"):
        return None
    user, password = (quote(found.get(name, ""), safe="") for name in ("user", "password"))
    host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
    database = quote(found.get("database", ""), safe="")
    return f"mysql://{user}:{password}@{host}:{found.get('port') or 3306}/{database}"


def arrays(url: str, statement: str, values: Sequence[Any], sent: StructType) -> Iterator[Arrays]:
    """Yield the columns of the rows in batches; ``values`` are numbers."""
    import connectorx

    batches = connectorx.read_sql(
        url,
        statement % tuple(map(int, values)),
        return_type="arrow_stream",
        batch_size=ROWS_WITH_BODIES if "body" in sent.names else BATCH_ROWS,
        pre_execution_query=f"SET SESSION net_write_timeout = {WRITE_SECONDS}",
    )
    for batch in batches:
        if batch.num_rows:
            yield {c.name: _as(column, c) for c, column in zip(sent, batch.columns, strict=True)}


def _as(column: pa.Array, wanted: Any) -> pa.Array:
    if isinstance(wanted.dataType, BooleanType):
        return column.cast(pa.int64()).cast(pa.bool_())
    return column.cast(type_of(wanted))
