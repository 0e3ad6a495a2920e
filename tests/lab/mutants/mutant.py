"""Defines a mutant: one edit of one file, and the test that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """Says that the text that a mutant replaces is not in its file exactly once."""


@dataclass(frozen=True)
class Mutant:
    """``before`` becomes ``after`` in ``file``; then ``test`` must fail on ``db``.

    ``test`` is a pytest id. Without the brackets of a parameter it stands for all of them, and
    one red one is enough. A trial makes the tables from the models: the edit of a migration is
    noticed only by a test that migrates by itself.
    """

    name: str
    file: str
    before: str
    after: str
    test: str
    db: str = "sqlite"

    def mutated(self, tree: Path) -> str:
        """Return the text of its file with the edit; raises DoesNotApply."""
        path = tree / self.file
        text = path.read_text() if path.exists() else ""
        if (found := text.count(self.before)) != 1:
            raise DoesNotApply(f"{self.name}: found {found} times in {self.file}:\n{self.before}")
        return text.replace(self.before, self.after)

    def apply(self, tree: Path) -> None:
        (tree / self.file).write_text(self.mutated(tree))
