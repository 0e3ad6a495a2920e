"""Keeps which parts of a long target are green on a commit. Standard library only.

``make test-all`` and ``make mutants`` take hours on a small machine. Each part of them is kept as
soon as it has ended, for the commit that is checked out, so that the next run goes on with those
that are missing. What is not committed has no name: with such changes nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(".pytest_cache") / "parts"
# What a green run of everything writes; no test reads it.
WRITTEN_AT_THE_END = "tests/durations.json"

GREEN, RED = "passed", "FAILED"


@dataclass
class Part:
    """Is what came of one part."""

    name: str
    result: str
    counts: list[int]  # one for each column of the table
    seconds: float
    red_before: list[str] = field(
        default_factory=list
    )  # what failed in earlier runs, on the commit
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_green(self) -> bool:
        return self.result == GREEN


class Parts:
    """The parts of a target: which are green on this commit, and which are missing."""

    def __init__(
        self,
        target: str,
        names: Sequence[str],
        columns: Sequence[str],
        root: Path = ROOT,
    ) -> None:
        self._target, self._columns, self._root = target, columns, root
        self.commit, self._clean = checked_out(root)
        self._folder = root / FOLDER / target / self.commit
        self._names = names
        self._known: dict[str, Part] = {}
        for name in names if self._clean else []:
            if (path := self._path(name)).exists():
                self._known[name] = Part(**json.loads(path.read_text()))

    def chosen(self, options: argparse.Namespace) -> list[str]:
        """Return the parts that are to be run: see add_arguments()."""
        wanted = [name for name in self._names if name.startswith(tuple(options.part) or "")]
        if options.again:
            for name in wanted:
                self._known.pop(name, None)
                self._path(name).unlink(missing_ok=True)
        return [name for name in wanted if not self._is_green(name)]

    def all_green(self) -> bool:
        return all(map(self._is_green, self._names))

    def add(
        self,
        name: str,
        counts: list[int],
        seconds: float,
        *,
        failed: Sequence[str],
        green: bool,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Write down how a part has ended, unless the work tree is another one by now."""
        before = self._known[name].red_before if name in self._known else []
        red = [*before, *(name for name in failed if name not in before)]
        if checked_out(self._root) != (self.commit, self._clean):
            print(f"*** {name}: the work tree has changed meanwhile; this run says nothing. ***")
            self._known.pop(name, None)
            return
        part = Part(name, GREEN if green else RED, counts, round(seconds, 1), red, details or {})
        self._known[name] = part
        if self._clean:
            self._keep(part)

    def known(self) -> Iterator[Part]:
        """Yield what is known of the parts, in their order."""
        yield from (self._known[name] for name in self._names if name in self._known)

    def table(self) -> Iterator[str]:
        """Yield a line for each part."""
        width = max(map(len, [*self._names, self._target]))
        head = "".join(f"{column:>10}" for column in self._columns)
        yield f"\n{self._target:{width}}  result {head}   minutes  commit"
        for name in self._names:
            if part := self._known.get(name):
                counts = "".join(f"{count:>10}" for count in part.counts)
                minutes = part.seconds / 60
                yield f"{name:{width}}  {part.result:7}{counts}{minutes:>10.1f}  {self.commit}"
            else:
                yield f"{name:{width}}  NOT RUN"

    def conclusion(self) -> Iterator[str]:
        """Yield what holds of all parts, for the end of the output."""
        green = [part for part in self.known() if part.is_green]
        for part in green:
            if part.red_before:
                yield f"\n{part.name} passed in a later run: {', '.join(part.red_before)}"
        counts = ", ".join(
            f"{sum(part.counts[at] for part in green):,} {column}"
            for at, column in enumerate(self._columns)
        )
        minutes = sum(part.seconds for part in green) / 60
        yield (
            f"\n{len(green)} of {len(self._names)} parts are green on {self.commit}: "
            f"{counts}, in {minutes:.0f} minutes of parts"
        )
        if not self._clean:
            yield "Nothing is kept: the work tree has changes that are not committed."
        elif len(green) < len(self._names):
            yield f"make {self._target} goes on with the others."

    def _is_green(self, name: str) -> bool:
        return name in self._known and self._known[name].is_green

    def _path(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '.')}.json"

    def _keep(self, part: Part) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in set(self._folder.parent.iterdir()) - {self._folder}:
            shutil.rmtree(other, ignore_errors=True)
        path = self._path(part.name)
        half = path.with_suffix(".half")  # who dies while writing leaves no half of a result
        half.write_text(json.dumps(asdict(part)))
        half.replace(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose parts."""
    parser.add_argument("--again", action="store_true", help="forget what is green on this commit")
    parser.add_argument(
        "--part", action="append", default=[], help="only the parts whose names begin so"
    )


def checked_out(root: Path) -> tuple[str, bool]:
    """Return the commit that is checked out, and whether the work tree is just that."""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    status = _git(root, "status", "--porcelain", "--", ".", f":!{WRITTEN_AT_THE_END}")
    return (commit, True) if commit and status == "" else (f"{commit} and changes", False)


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
