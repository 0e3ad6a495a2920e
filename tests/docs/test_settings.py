"""docs/reference/settings.md says what the code does: names, defaults, constants."""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from datetime import timedelta
from importlib import import_module

import pytest

from streams import conf, consumer, runtime_settings
from streams.consume.limits import Overrides, limits, threads
from streams.consume.registry import find
from streams.consume.subscription import subscribe
from streams.models import ConsumerGroup, SystemConfig
from tests.docs.documents import DOCS, section, table

SETTINGS = DOCS / "reference" / "settings.md"
NAMED = re.compile(r"`(\w+)`")


def test_every_key_of_ems_is_documented_with_its_default() -> None:
    documented = {key: literal_eval(text) for key, text in table(SETTINGS, "The dict EMS").items()}
    assert documented == vars(conf.Settings())


def test_every_run_time_setting_is_documented_with_its_default() -> None:
    rows = table(SETTINGS, "Run-time settings")
    assert {name: literal_eval(text) for name, text in rows.items()} == conf.DEFAULTS


def test_every_argument_of_consumer_is_documented_with_its_default() -> None:
    parameters = inspect.signature(consumer).parameters
    required = inspect.Parameter.empty
    expected = {
        name: "required" if parameter.default is required else parameter.default
        for name, parameter in parameters.items()
    }
    rows = table(SETTINGS, "@consumer")
    documented = {n: text if text == "required" else literal_eval(text) for n, text in rows.items()}
    assert documented == expected


def test_every_constant_has_the_documented_value() -> None:
    for path, text in table(SETTINGS, "Fixed numbers").items():
        module, _, name = path.rpartition(".")
        value = getattr(import_module(module), name)
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        assert seconds == literal_eval(text), path


def test_every_limit_has_the_documented_value() -> None:
    lines = [line for line in section(SETTINGS, "Limits").splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 20
    for line in lines:
        what, at_most, changed_by, constant = (cell.strip() for cell in line.strip("|").split("|"))
        known = [conf.DEFAULTS[name] for name in NAMED.findall(changed_by) if name in conf.DEFAULTS]
        if path := constant.strip("`"):
            module, _, name = path.rpartition(".")
            value = getattr(import_module(module), name)
        elif known:
            value = known[0]
        else:
            continue
        number = value.days if isinstance(value, timedelta) else value
        assert re.match(r"[\d,]+", at_most)[0] == f"{number:,}", what  # type: ignore[index]


def test_a_documented_row_of_system_config_can_be_written(db: None) -> None:
    (example,) = [text for text in blocks_of("Run-time settings") if "SystemConfig" in text]
    exec(example)  # noqa: S102 - the block is ours
    assert SystemConfig.objects.get().name == "consumerBatchSize"
    assert runtime_settings.system("consumerBatchSize", "default") == 50


def blocks_of(heading: str) -> list[str]:
    return section(SETTINGS, heading).split("```python\n")[1:][0].split("```")[:1]


@pytest.mark.django_db
@pytest.mark.usefixtures("clean_registry")
def test_the_documented_one_of_four_settings_holds() -> None:
    """The section “Which one holds”, from the weakest to the strongest."""

    def in_force(command_line: Overrides) -> tuple[int, int, float, int]:
        registration = find("orders", "mail")
        assert registration
        group = subscribe(registration, "default")
        now = limits(group, registration, "default", command_line)
        how_many = threads(registration, "default", command_line)
        return now.batch, now.max_retries, now.consume_timeout.total_seconds(), how_many

    def handler(message: object) -> None: ...

    consumer("orders", group="mail")(handler)
    for name in ("consumerBatchSize", "consumerRetryMaxTimes", "consumeTimeoutSeconds"):
        SystemConfig.objects.create(name=name, value=11)
    SystemConfig.objects.create(name="consumerThreads", value=11)
    assert in_force(Overrides()) == (11, 11, 11, 11)
    assert in_force(Overrides(threads=33)) == (11, 11, 11, 33)
    consumer("orders", group="mail", batch=22, max_retries=22, consume_timeout=22, threads=22)(
        handler
    )
    assert in_force(Overrides()) == (22, 22, 22, 22)
    assert in_force(Overrides(threads=33, batch=33)) == (33, 22, 22, 22)
    ConsumerGroup.objects.update(batch=44, max_retries=44, consume_timeout=44)
    assert in_force(Overrides(threads=33, batch=33)) == (44, 44, 44, 22)
