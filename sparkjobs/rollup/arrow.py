"""Holds figures as Spark gives them, in Arrow: as dicts they would take ten times the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowRows:
    """The rows of an Arrow table as dicts, a part at a time."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def distinct(self, column: str) -> set[Any]:
        """Return the values of a column."""
        return set(self._table[column].unique().to_pylist())

    def total(self, column: str) -> int:
        """Return the sum of a column of numbers; 0 if there are no rows."""
        return int(sum(chunk.to_numpy().sum() for chunk in self._table[column].chunks))

    def parts(self, order: Sequence[str], rows: int) -> Iterator[list[dict[str, Any]]]:
        """Yield all rows in this order of columns, at most ``rows`` of them at a time."""
        ordered = self._table.sort_by([(column, "ascending") for column in order])
        for start in range(0, len(self), rows):
            yield ordered.slice(start, rows).to_pylist()
