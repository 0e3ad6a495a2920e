"""``python -m tests.lab.mutants [NAME…]``: exit status 0 if every mutant was noticed.

Without names it runs them in parts, those that are not green on this commit: see tests/parts.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.mutants.mutant import DoesNotApply, Mutant
from tests.lab.mutants.patches import MUTANTS
from tests.lab.mutants.trial import Trial, copy_of, run, snapshot
from tests.parts import Parts, add_arguments

AT_MOST = 25  # mutants in a part
NOTICED, SURVIVED, NO_VERDICT, NOT_RUN = "noticed", "SURVIVED", "NO VERDICT", "NOT RUN"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    word: str
    seconds: float = 0.0
    output: str = ""

    def __str__(self) -> str:
        name, test = self.mutant.name, self.mutant.test.rpartition("::")[2]
        return f"{name:36} {self.word:10} {self.mutant.db:8} {self.seconds:>5.0f} s  {test}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.mutants", allow_abbrev=False)
    parser.add_argument("name", nargs="*", help="only these mutants; nothing is kept")
    # One more than processors: some only wait, for a lock.
    parser.add_argument("--jobs", type=int, default=min(4, (os.cpu_count() or 1) + 1))
    add_arguments(parser)
    options = parser.parse_args()
    if unknown := set(options.name) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if options.name:
        return _run_these([m for m in MUTANTS if m.name in options.name], options.jobs)
    return _run_in_parts(options)


def _run_these(chosen: Sequence[Mutant], jobs: int) -> int:
    with applied(chosen) as tree:
        verdicts = _verdicts(chosen, tree, jobs)
    return 1 if verdicts is None else _report(verdicts)


def _run_in_parts(options: argparse.Namespace) -> int:
    by_part = parts_of(MUTANTS)
    parts = Parts("mutants", [*by_part], ["mutants", "noticed"])
    with applied(MUTANTS) as tree:
        for name in parts.chosen(options):
            print(f"\n===== {name}: {len(by_part[name])} mutants =====", flush=True)
            started_at = time.monotonic()
            verdicts = _verdicts(by_part[name], tree, options.jobs)
            if verdicts is None:
                others = ["the code without a mutant"]
            else:
                _report(verdicts)
                others = [v.mutant.name for v in verdicts if v.word != NOTICED]
            noticed = sum(v.word == NOTICED for v in verdicts or [])
            counts = [len(by_part[name]), noticed]
            seconds = time.monotonic() - started_at
            parts.add(name, counts, seconds, failed=others, green=not others)
    print("\n".join([*parts.table(), *parts.conclusion()]))
    return int(not parts.all_green())


def parts_of(mutants: Sequence[Mutant]) -> dict[str, list[Mutant]]:
    """Return the mutants by part: those that tests of one folder notice, AT_MOST a part."""
    folders: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        folders.setdefault(mutant.test.split("/")[1], []).append(mutant)
    return {
        f"{folder}-{at}": found[start : start + AT_MOST]
        for folder, found in folders.items()
        for at, start in enumerate(range(0, len(found), AT_MOST), start=1)
    }


@contextmanager
def applied(mutants: Sequence[Mutant]) -> Iterator[Path]:
    """Hold a copy of the checkout to which each of these mutants applies."""
    with snapshot() as tree:
        try:
            for mutant in mutants:
                mutant.mutated(tree)
        except DoesNotApply as error:
            sys.exit(f"The code has changed under a mutant. {error}")
        yield tree


def _verdicts(chosen: Sequence[Mutant], tree: Path, jobs: int) -> list[Verdict] | None:
    """Return one for each mutant; None if the unchanged code does not pass the named tests."""
    here = [mutant for mutant in chosen if _has_server(mutant.db)]
    verdicts = {mutant.name: Verdict(mutant, NOT_RUN) for mutant in chosen}
    with ThreadPoolExecutor(jobs) as pool:
        unchanged = _unchanged(pool, here, tree)
        tried = [pool.submit(_try, mutant, tree) for mutant in here]
        if not _all_green(unchanged):
            pool.shutdown(cancel_futures=True)
            return None
        for future in as_completed(tried):
            verdict = future.result()
            verdicts[verdict.mutant.name] = verdict
            print(verdict, flush=True)
    return list(verdicts.values())


def _has_server(db: str) -> bool:
    return db == "sqlite" or f"EMS_TEST_{db.upper()}_URL" in os.environ


def _unchanged(
    pool: ThreadPoolExecutor, mutants: Sequence[Mutant], tree: Path
) -> list[tuple[str, list[str], Future[Trial]]]:
    """Run all named tests on the unchanged code: a database, its tests, and their trial."""
    by_db = {db: [m.test for m in mutants if m.db == db] for db in {m.db for m in mutants}}
    return [(db, ids, pool.submit(_try_unchanged, ids, db, tree)) for db, ids in by_db.items()]


def _all_green(unchanged: Sequence[tuple[str, list[str], Future[Trial]]]) -> bool:
    """Tell whether the unchanged code passes the tests; else the failure of one means nothing."""
    green = True
    for db, tests, future in unchanged:
        trial = future.result()
        not_green = [test for test in dict.fromkeys(tests) if not trial.is_green(test)]
        print(f"{len(set(tests))} tests on {db}, unchanged: {trial.seconds:.0f} s", flush=True)
        if not_green:
            print(trial.output)
            print(f"Not green on {db} without a mutant:", *not_green, sep="\n  ")
            green = False
    return green


def _try_unchanged(tests: Sequence[str], db: str, tree: Path) -> Trial:
    with copy_of(tree) as copy:
        return run(copy, tests, db)


def _try(mutant: Mutant, tree: Path) -> Verdict:
    with copy_of(tree) as copy:
        mutant.apply(copy)
        trial = run(copy, [mutant.test], mutant.db)
    word = NO_VERDICT
    if trial.is_red(mutant.test):
        word = NOTICED
    elif trial.status == 0 and trial.is_green(mutant.test):
        word = SURVIVED
    return Verdict(mutant, word, trial.seconds, trial.output)


def _report(verdicts: Sequence[Verdict]) -> int:
    for verdict in verdicts:
        if verdict.word == NO_VERDICT:
            print(f"\n===== {verdict.mutant.name} =====\n{verdict.output}")
    print(f"\n{'mutant':36} {'result':10} {'on':8} {'time':>7}  by")
    for verdict in verdicts:
        print(verdict)
    counts = {word: sum(v.word == word for v in verdicts) for word in (NOTICED, SURVIVED)}
    print(f"\n{len(verdicts)} mutants: {counts[NOTICED]} noticed, {counts[SURVIVED]} survived")
    if any(verdict.word == NOT_RUN for verdict in verdicts):
        print("*** NOT RUN: no server is available for them (see above). ***")
    return int(any(verdict.word in (SURVIVED, NO_VERDICT) for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
