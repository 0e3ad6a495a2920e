"""The pages of docs/reference/ are complete: what the code has, they explain, and nothing else."""

from __future__ import annotations

import inspect
import pkgutil
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth.management import _get_all_permissions  # type: ignore[attr-defined]
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.db.models import Model

import monitoring
import sparkjobs.jobs
import streams
from streams import errors
from streams.errors import StreamsError
from streams.observe.audit.finding import FindingKind
from tests.docs.documents import DOCS, ROOT, section, table

REFERENCE = DOCS / "reference"
OURS = ("streams", "monitoring")
OPTION = re.compile(r"`(--[\w-]+)`")


def source() -> str:
    """All modules of the apps: where a check or a diagnosis is may change, what it says not."""
    paths = [path for app in OURS for path in sorted((ROOT / app).rglob("*.py"))]
    return "".join(path.read_text() for path in paths)


# -- commands --

OF_APPS = (*OURS, "streams.contrib.tasks")
COMMANDS = sorted(name for name, app in get_commands().items() if app in OF_APPS)
PAGE = REFERENCE / "commands.md"


def options(parser: ArgumentParser) -> set[str]:
    """The options of a command or verb, without those of Django."""
    own = {name for action in parser._actions for name in action.option_strings}
    django = BaseCommand().create_parser("manage.py", "x")
    return own - {name for action in django._actions for name in action.option_strings}


def parsers(command: str) -> dict[str, ArgumentParser]:
    """A parser for each verb; the one of a command without verbs is called ""."""
    app = get_commands()[command]
    parser = load_command_class(str(app), command).create_parser("manage.py", command)
    found = {
        verb: sub
        for action in parser._actions
        if isinstance(action.choices, dict)
        for verb, sub in action.choices.items()
    }
    return found or {"": parser}


def job_options(verb: str) -> set[str]:
    """What a verb of ems_spark passes on to its job."""
    if verb not in {module.name for module in pkgutil.iter_modules(sparkjobs.jobs.__path__)}:
        return set()
    path = Path(sparkjobs.jobs.__path__[0]) / f"{verb}.py"
    return set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', path.read_text()))


def rows(heading: str) -> Iterator[list[str]]:
    for line in section(PAGE, heading).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_every_command_has_a_section() -> None:
    headings = re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_verb_and_option_of_a_command_is_documented(command: str) -> None:
    if command == "ems_relay":  # its section says so
        relay, consume = parsers("ems_relay"), parsers("ems_consume")
        assert options(relay[""]) == options(consume[""])
        return
    common = {"--database", "--json"} if command != "ems_consume" else set()
    expected = {
        verb: options(parser) - common - ({"--seconds"} if command == "ems_spark" else set())
        for verb, parser in parsers(command).items()
    }
    if command == "ems_spark":
        expected = {verb: found | job_options(verb) for verb, found in expected.items()}
    if "" not in expected:
        # The verbs come first: a column of a list may have the name of one.
        every_row = reversed(list(rows(command)))
        named = {row[0].strip("`"): row for row in every_row if row[0].strip("`") in expected}
        assert {verb: set(OPTION.findall(row[1])) for verb, row in named.items()} == expected
    every = set().union(*expected.values()) | ({"--seconds"} if command == "ems_spark" else set())
    explained = [OPTION.findall(row[0]) for row in rows(command)]
    assert {one for found in explained for one in found} == every


# -- checks, diagnoses, findings --


def test_every_system_check_is_documented() -> None:
    documented = table(REFERENCE / "checks.md", "System checks")
    assert set(documented) == set(re.findall(r'id="(ems\.\w+)"', source()))


def test_every_diagnosis_of_the_doctor_is_documented() -> None:
    named = set(re.findall(r'Diagnosis\(\s*(?:OK|WARNING|ERROR),\s*"([\w ]+)"', source()))
    # What the audit says is in the next table; the steps and the jobs of the night are constants.
    expected = (named - {"audit"}) | {"sequence", "sweep", "archive", "reconcile"}
    cells = table(REFERENCE / "doctor.md", "Diagnoses")
    documented = {name.strip(" `") for cell in cells for name in cell.split(",")}
    assert documented - {""} == expected


def test_every_finding_of_the_audit_is_documented() -> None:
    assert set(table(REFERENCE / "doctor.md", "Findings")) == set(get_args(FindingKind))


# -- permissions --


def test_every_permission_is_documented() -> None:
    expected = {
        f"{label}.{codename}"
        for label in ("ems", "ems_monitoring", "ems_tasks")
        for model in apps.get_app_config(label).get_models()
        for codename, _name in _get_all_permissions(model._meta)
    }
    page = REFERENCE / "permissions.md"
    actions, views = table(page, "Actions"), table(page, "Views")
    assert set(actions) | set(views) == expected
    assert all(".view_" in name for name in views)


def test_every_table_that_may_be_viewed_has_a_page() -> None:
    rows = table(REFERENCE / "permissions.md", "Views")
    text = source()
    for label in ("ems", "ems_monitoring", "ems_tasks"):
        for model in apps.get_app_config(label).get_models():
            name = f"{label}.view_{model._meta.model_name}"
            if name in rows:
                assert model in site._registry or name in text, name


def test_everything_that_the_pages_do_a_command_does() -> None:
    lines = section(REFERENCE / "permissions.md", "Actions").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    assert len(rows) == len(table(REFERENCE / "permissions.md", "Actions"))
    for permission, _what, commands in rows:
        named = re.findall(r"`(ems_\w+)(?: ([\w-]+))?`", commands)
        assert named, permission
        for command, verb in named:
            assert verb in parsers(command), f"{command} {verb}"


# -- errors --


def tree(root: type[Exception]) -> set[type[Exception]]:
    return {root}.union(*(tree(child) for child in root.__subclasses__()))


def test_every_error_is_documented() -> None:
    for package in (streams, monitoring):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in module.name and not module.name.endswith(".tasks"):
                try:
                    import_module(module.name)
                except ModuleNotFoundError as absent:
                    assert absent.name == "prometheus_client"  # noqa: PT017 - of the extra metrics
    expected = {error.__name__ for error in tree(StreamsError) if error.__module__[:6] != "tests."}
    for_handlers = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and not issubclass(value, StreamsError)
    }
    page = REFERENCE / "errors.md"
    headings = ("From send()", "From consumers", "From operations")
    documented = {name for heading in headings for name in table(page, heading)}
    assert documented == expected
    raised = {name.partition("(")[0] for name in table(page, "What a handler raises")}
    assert raised == for_handlers


# -- metrics --

MODELS = sorted(
    (m for m in apps.get_app_config("ems_monitoring").get_models() if m._meta.managed),
    key=lambda m: m._meta.db_table,
)


def test_every_table_of_figures_has_a_section() -> None:
    headings = re.findall(r"^## (ems_\w+)$", (REFERENCE / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(headings) == [model._meta.db_table for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_column_of_figures_is_documented(model: type[Model]) -> None:
    page, name = REFERENCE / "metrics.md", model._meta.db_table
    assert set(table(page, name)) == {field.name for field in model._meta.fields}
    assert f"Model `{model.__name__}`" in section(page, name)
