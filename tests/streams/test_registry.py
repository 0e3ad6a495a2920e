"""@consumer and discovery: what is refused, and that it is refused early."""

from __future__ import annotations

import functools
import sys
import textwrap

import pytest
from django.apps import AppConfig, apps
from django.test import override_settings

from streams import consumer
from streams.consume import registry
from streams.consume.registry import autodiscover, find, registrations
from streams.errors import InvalidConsumer, InvalidName
from tests.consuming import registered

pytestmark = pytest.mark.usefixtures("clean_registry")


def handle(message):
    pass


# -- the decorator -----------------------------------------------------------------------------


def test_the_function_comes_back_unchanged():
    assert consumer("orders", group="mail")(handle) is handle
    assert registered("orders", "mail").handler is handle


def test_what_the_decorator_says_is_kept():
    consumer(
        "orders",
        group="mail",
        batch=5,
        threads=3,
        start="latest",
        atomic=True,
        max_retries=0,
        consume_timeout=2.5,
    )(handle)
    found = registered("orders", "mail")
    assert (found.batch, found.threads, found.start, found.atomic) == (5, 3, "latest", True)
    assert (found.max_retries, found.consume_timeout) == (0, 2.5)
    assert found.name.endswith("test_registry.handle")


def test_what_the_decorator_leaves_out_is_left_to_the_run_time_settings():
    consumer("orders", group="mail")(handle)
    found = registered("orders", "mail")
    assert (found.batch, found.threads, found.max_retries, found.consume_timeout) == (None,) * 4
    assert (found.start, found.atomic) == (None, False)


def test_the_same_function_may_consume_several_topics_in_several_groups():
    consumer("orders", group="mail")(handle)
    consumer("orders", group="board")(handle)
    consumer("payments", group="mail")(handle)
    assert len(list(registrations())) == 3
    assert [r.topic for r in registrations(groups=("mail",))] == ["orders", "payments"]
    assert [r.group for r in registrations(topics=("orders",))] == ["mail", "board"]
    assert [r.group for r in registrations(("orders",), ("board",))] == ["board"]


def test_a_second_function_for_a_group_is_refused():
    consumer("orders", group="mail")(handle)
    with pytest.raises(InvalidConsumer, match=r"'mail'.*test_registry\.handle"):

        @consumer("orders", group="mail")
        def another(message):
            pass

    assert registered("orders", "mail").handler is handle


def test_the_same_function_again_is_no_duplicate():
    consumer("orders", group="mail")(handle)
    consumer("orders", group="mail")(handle)
    assert len(list(registrations())) == 1


async def async_generator(message):
    yield


def generator(message):
    yield


class GeneratorObject:
    def __call__(self, message):
        yield


@pytest.mark.parametrize(
    "handler",
    [
        async_generator,
        generator,
        functools.partial(generator),
        GeneratorObject(),
        GeneratorObject,
        "not a function",
        None,
    ],
    ids=[
        "async generator",
        "generator",
        "partial generator",
        "generator object",
        "class",
        "text",
        "nothing",
    ],
)
def test_what_would_never_run_is_refused_at_decoration(handler):
    with pytest.raises(InvalidConsumer):
        consumer("orders", group="mail")(handler)
    assert find("orders", "mail") is None


def without_argument():
    pass


def with_two(message, session):
    pass


def with_a_keyword(message, *, session):
    pass


async def async_without_argument():
    pass


@pytest.mark.parametrize(
    "handler",
    [without_argument, with_two, with_a_keyword, async_without_argument],
    ids=["no argument", "two arguments", "keyword", "async"],
)
@pytest.mark.parametrize("batch", [None, 5])
def test_what_cannot_be_called_with_one_argument_is_refused_at_decoration(handler, batch):
    argument = "one list of messages" if batch else "one message"
    with pytest.raises(InvalidConsumer, match=rf"{handler.__name__}\(.*{argument} alone"):
        consumer("orders", group="mail", batch=batch)(handler)
    assert find("orders", "mail") is None


def test_a_method_is_refused_at_decoration():
    with pytest.raises(InvalidConsumer, match=r"Shop\.handle\(self, message\).*self"):

        class Shop:
            @consumer("orders", group="mail")  # type: ignore[type-var]
            def handle(self, message):
                pass

    assert find("orders", "mail") is None


def test_what_has_other_arguments_with_defaults_is_a_handler():
    consumer("orders", group="mail")(lambda message, tries=3, *rest, **named: None)
    assert find("orders", "mail")


class Handler:
    def __call__(self, message):
        pass

    def method(self, message):
        pass


@pytest.mark.parametrize(
    "handler",
    [
        functools.partial(handle),
        Handler(),
        Handler().method,
        [].append,
        lambda message: None,
        print,
    ],
    ids=["partial", "object", "method", "built-in method", "lambda", "built-in"],
)
def test_whatever_can_be_called_can_be_named(handler):
    """The name is in the log, in errors and in what ems_consume prints."""
    consumer("orders", group="mail")(handler)
    assert registered("orders", "mail").name


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": 1001},
        {"batch": True},
        {"batch": 2.5},
        {"batch": "10"},
        {"threads": 0},
        {"threads": 1001},
        {"threads": "5"},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"max_retries": True},
        {"consume_timeout": 0},
        {"consume_timeout": -5},
        {"consume_timeout": "60"},
        {"consume_timeout": float("nan")},
        {"consume_timeout": float("inf")},
        {"consume_timeout": 10.0**12},
        {"consume_timeout": True},
        {"start": "newest"},
        {"atomic": "yes"},
        {"mode": "anycast"},
        {"ordered": 1},
        {"tags": "paid"},
    ],
    ids=str,
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidConsumer, match=next(iter(options))):
        consumer("orders", group="mail", **options)(handle)
    assert find("orders", "mail") is None


@pytest.mark.parametrize("name", ["", " orders", "orders ", "x" * 128, "a\nb", None, 7, b"orders"])
def test_bad_names_are_refused(name):
    with pytest.raises(InvalidName):
        consumer(name, group="mail")(handle)
    with pytest.raises(InvalidName):
        consumer("orders", group=name)(handle)


def test_options_must_be_named():
    with pytest.raises(TypeError):
        consumer("orders", "mail")  # type: ignore[call-overload]


# -- discovery ---------------------------------------------------------------------------------


@pytest.fixture
def an_app(tmp_path, monkeypatch):
    """Install an app with the given consumers.py, or with none: ``an_app("code")``."""
    monkeypatch.syspath_prepend(tmp_path)
    overrides = []

    def install(code=None, name="discovered"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        if code is not None:
            (package / "consumers.py").write_text(textwrap.dedent(code))
        overrides.append(override_settings(INSTALLED_APPS=[*installed(), name]))
        overrides[-1].enable()

    yield install
    for override in reversed(overrides):
        override.disable()
    for name in [name for name in sys.modules if name.partition(".")[0] == "discovered"]:
        del sys.modules[name]


def installed():
    return [config.name for config in apps.get_app_configs()]


CONSUMERS = """
from streams import consumer

@consumer("orders", group="found")
def handle(message):
    pass
"""


def test_consumers_are_found_in_the_apps(an_app):
    an_app(CONSUMERS)
    assert find("orders", "found") is None  # installing an app imports nothing
    autodiscover()
    assert registered("orders", "found").name == "discovered.consumers.handle"
    autodiscover()
    assert len(list(registrations())) == 1


def test_an_app_without_consumers_is_fine(an_app):
    an_app()
    autodiscover()
    assert list(registrations()) == []


def test_an_import_error_inside_is_raised(an_app):
    an_app("import a_module_that_is_not_there")
    with pytest.raises(ImportError, match="a_module_that_is_not_there"):
        autodiscover()


def test_any_other_error_inside_is_raised(an_app):
    an_app("1 / 0")
    with pytest.raises(ZeroDivisionError):
        autodiscover()


def test_an_error_inside_is_raised_again_the_next_time(an_app):
    """A retry must not find half of the consumers and be content."""
    an_app(CONSUMERS + "\nimport a_module_that_is_not_there\n")
    for _ in range(2):
        registry._registered.clear()
        with pytest.raises(ImportError):
            autodiscover()


def test_a_module_of_another_library_by_that_name_does_no_harm(an_app):
    """channels, for one, uses consumers.py too."""
    an_app("class ChatConsumer: pass")
    autodiscover()
    assert list(registrations()) == []


def test_nothing_is_imported_while_the_apps_load(spawn, tmp_path):
    package = tmp_path / "early"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "consumers.py").write_text("print('consumers imported')\n")
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from django.test import override_settings\n"
        "from django.apps import apps\n"
        "names = [config.name for config in apps.get_app_configs()]\n"
        "with override_settings(INSTALLED_APPS=[*names, 'early']):\n"
        "    print('loaded')\n"
        "    from streams.consume.registry import autodiscover\n"
        "    autodiscover()\n"
    )
    lines = spawn(code).succeed().split("\n")
    assert lines[:2] == ["loaded", "consumers imported"]


def test_ready_of_the_app_imports_no_consumers(an_app, monkeypatch):
    an_app("1 / 0")
    config = apps.get_app_config("ems")
    assert isinstance(config, AppConfig)
    config.ready()
