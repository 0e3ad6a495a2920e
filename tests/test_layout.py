"""Imports point one way: each room names those that it may use, and nobody imports upwards.

Read from the source, imports inside functions included. docs/contributing/map.md shows the rooms.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from streams import _HOME as PUBLIC

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("streams", "monitoring", "sparkjobs")

# From the ground up. A module may import from the floors below its own, and from its own room.
FLOORS: dict[str, list[set[str]]] = {
    "streams": [
        {"rules"},
        {"errors", "logs", "plural", "signals", "unserializable", "outgoing", "release"},
        {"telemetry", "typed"},
        {"database", "conf", "body", "durations", "state_files"},
        {"models", "api", "tracing", "sharding"},
        {"runtime_settings"},
        {"log", "wakeup"},
        {"produce", "consume"},
        {"two_phase", "deliver", "relays", "retain"},
        {"operate", "steps", "observe"},
        {"nouns"},
        {"process", "admin", "schedule", "metrics"},
        {"stress", "sizing"},
        {"management", "testing", "forwarding", "http", "celery"},
        {"chaos", "checks"},
        {"contrib"},  # apps of their own
        # Where Django, Celery and hosts look.
        {"apps", "tasks", "consumers", "routers", "templatetags", "migrations", "__init__"},
    ],
    "monitoring": [
        {"models", "java", "options", "clock", "signals"},
        {"live"},
        {"alarms"},
        {"sample", "charts"},
        {"figures", "jobs", "report", "doctor", "old_figures", "old_staged"},
        {"pages"},
        {"admin"},
        {"management", "schedule"},
        {"tasks", "apps", "migrations", "templatetags", "__init__"},
    ],
    "sparkjobs": [
        {"errors"},
        {"config"},
        {"database"},
        {"instants", "lock", "ledger", "placement", "jvm", "package", "progress", "databases"},
        {"sink"},
        {"source"},
        {"storage"},
        {"rollup", "audit", "archive", "session"},
        {"resident", "lake"},
        {"jobs"},
        {"__main__", "__init__"},
    ],
}


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def room(module: str) -> str:
    """The room of a module: the folder or file below its package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that this one imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if node.module == "streams" and alias.name in PUBLIC:
                    yield PUBLIC[alias.name]
                else:
                    yield full if is_module(full) else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def arrows() -> Iterator[tuple[str, str]]:
    for path in modules():
        source = name_of(path)
        for target in imported(path):
            if target.split(".")[0] in PACKAGES and target != source:
                yield source, target


def floor(module: str) -> int:
    package = module.split(".")[0]
    (found,) = (n for n, rooms in enumerate(FLOORS[package]) if room(module) in rooms)
    return found


def test_every_module_is_in_a_room() -> None:
    for path in modules():
        floor(name_of(path))


def test_nobody_imports_upwards() -> None:
    wrong = [
        f"{source} imports {target}"
        for source, target in arrows()
        if source.split(".")[0] == target.split(".")[0]
        and room(source) != room(target)
        and floor(source) <= floor(target)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_monitoring_imports_another_package_and_spark_jobs_the_rules() -> None:
    """The Spark jobs run where no Django is, and nothing else of streams."""
    across = {(s.split(".")[0], t.split(".")[0], room(t)) for s, t in arrows()}
    others = {one for one in across if one[0] != one[1]}
    assert {one for one in others if one[0] != "monitoring"} == {("sparkjobs", "streams", "rules")}
    assert {one[1] for one in others if one[0] == "monitoring"} == {"streams"}


def test_the_rules_import_nothing_but_the_standard_library_and_each_other() -> None:
    targets = {
        target for path in (ROOT / "streams" / "rules").glob("*.py") for target in imported(path)
    }
    outside = {one for one in targets if not one.startswith("streams.rules.")}
    assert {one.split(".")[0] for one in outside} <= sys.stdlib_module_names


def test_the_rules_can_be_used_where_no_django_is() -> None:
    """As on an executor of Spark: ``-S`` leaves out all that is installed."""
    code = (
        "from streams.rules import body, dedup, errors, message, names, partition\n"
        "try: names.validated_name('a b', 'topic', 9)\n"
        "except errors.InvalidName as error: print(error)\n"
        "import django"
    )
    env = {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-S", "-c", code]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.stdout == "A topic has letters, digits and . _ - : only: 'a b' has others.\n"
    assert "No module named 'django'" in done.stderr


def test_there_is_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for source, target in arrows():
        # A package that is imported for its names stands for what its __init__ imports.
        graph.setdefault(source, set()).add(target)
    graph.pop("streams", None)  # it loads its names when they are first used
    TopologicalSorter(graph).prepare()


def test_every_module_says_in_a_line_what_it_is() -> None:
    silent = [
        name_of(path)
        for path in modules()
        if "migrations" not in path.parts and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent, "\n".join(silent)


# Used for several classes, to be renamed; none may be added. Some are what clients of the HTTP API
# and its contract call them: streams/http/client.py, streams/http/routes.
NAMES_OF_SEVERAL = """
    Asked Client Delivery LeaseLost Level Log Look Message Outcome Overview Place Position Purged
    Reject Retry Run Settled Share Start Stretch Table Window
""".split()  # noqa: SIM905 - it is to become shorter


def test_a_class_name_is_used_once() -> None:
    """A reader who finds the name in a traceback or by search finds one class."""
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in {"Meta", "Command", "Migration"}:
                places.setdefault(node.name, []).append(name_of(path))
    several = {name: where for name, where in places.items() if len(where) > 1}
    assert several.keys() == set(NAMES_OF_SEVERAL), several
