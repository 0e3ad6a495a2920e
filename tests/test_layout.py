"""Imports point one way: each room names those that it may use, and nobody imports upwards.

Read from the source, imports inside functions included. docs/contributing/map.md shows the rooms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from streams import _HOME as PUBLIC

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("streams", "monitoring", "sparkjobs")

# From the ground up. A module may import from the floors below its own, and from its own room.
FLOORS: dict[str, list[set[str]]] = {
    "streams": [
        {"errors", "logs", "signals", "unserializable", "outgoing"},
        {"telemetry"},
        {"database", "conf", "names", "body", "durations", "state_files"},
        {"models", "api", "tracing", "sharding"},
        {"runtime_settings"},
        {"log", "wakeup"},
        {"produce", "consume", "retain"},
        {"two_phase", "deliver"},
        {"operate", "steps", "observe"},
        {"process", "admin", "schedule", "metrics"},
        {"stress"},
        {"management", "testing", "checks", "forwarding", "http"},
        {"chaos"},
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


def test_only_monitoring_imports_another_package() -> None:
    """And of it only streams: the Spark jobs run where no Django is."""
    across = {(s.split(".")[0], t.split(".")[0]) for s, t in arrows()}
    assert {(s, t) for s, t in across if s != t} <= {("monitoring", "streams")}


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
