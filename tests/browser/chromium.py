"""Drives Chromium by Playwright, which runs in a thread of its own.

Playwright has an event loop in its thread, and there Django and EMS refuse what would stop one. So
a test works with the tables in its own thread, and asks for what is on the screen.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

NAMES = ("chromium", "chromium-browser", "google-chrome")
# In milliseconds: how long a step waits for what it needs on the page.
PATIENCE = 30_000
PHONE = {"width": 390, "height": 844}
SCREEN = {"width": 1280, "height": 900}


def installed() -> str:
    """Return the path of Chromium; empty if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


def program() -> str:
    """Return the path of Chromium; empty if it or Playwright is missing."""
    return installed() if find_spec("playwright") else ""


class Chromium:
    """Holds a browser; ``open()`` gives tabs that share nothing."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "chromium")
        self.run(self._launch)

    def _launch(self) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=program())

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run the function in the thread of the browser; return what it returns."""
        return self._thread.submit(function, *arguments).result()

    def open(self, address: str, **look: Any) -> Tab:
        """Open a tab whose paths are of ``address``; ``look`` are options of the context."""
        return Tab(self, address, look)

    def close(self) -> None:
        self.run(self._browser.close)
        self.run(self._playwright.stop)
        self._thread.shutdown()


class Tab:
    """Holds a tab, and collects in ``problems`` what its pages have done wrong."""

    def __init__(self, chromium: Chromium, address: str, look: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self._chromium = chromium
        self._address = address
        chromium.run(self._open, {"viewport": SCREEN, "locale": "en-GB", **look})

    def _open(self, look: dict[str, Any]) -> None:
        self._context = self._chromium._browser.new_context(base_url=self._address, **look)
        self._context.set_default_timeout(PATIENCE)
        self._page = self._context.new_page()
        self._page.on("pageerror", lambda error: self.problems.append(str(error)))
        self._page.on("console", self._note)
        self._page.on("request", self._refuse_foreign)
        self._page.on("response", self._refuse_failed)

    def _note(self, message: Any) -> None:
        # What a policy refuses is an error here, too. Failed requests are noted below.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _refuse_foreign(self, request: Any) -> None:
        if not request.url.startswith((self._address, "data:", "blob:")):
            self.problems.append(f"asked for {request.url}")

    def _refuse_failed(self, response: Any) -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            self.problems.append(f"{response.status} {response.url}")

    def do(self, function: Callable[[Any], T]) -> T:
        """Call the function with Playwright's page."""
        return self._chromium.run(function, self._page)

    def log_in(self, session: str) -> None:
        cookie = {"name": "sessionid", "value": session, "url": self._address}
        self._chromium.run(self._context.add_cookies, [cookie])

    def go(self, path: str) -> None:
        self.do(lambda page: page.goto(path))

    @property
    def path(self) -> str:
        """Return where the tab is, without the address of the server."""
        return self.do(lambda page: str(page.url)).removeprefix(self._address)

    def click(self, selector: str) -> None:
        self.do(lambda page: page.click(selector))

    def fill(self, selector: str, text: str) -> None:
        self.do(lambda page: page.fill(selector, text))

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches, as it is shown."""
        return self.do(lambda page: str(page.locator(selector).first.inner_text()))

    def texts(self, selector: str) -> list[str]:
        return self.do(lambda page: list(page.locator(selector).all_inner_texts()))

    def wait(self, selector: str, text: str = "") -> None:
        """Wait until an element that matches is shown, with this text in it."""
        self.do(lambda page: page.locator(selector).filter(has_text=text).first.wait_for())

    def ask(self, script: str, argument: Any = None) -> Any:
        """Return what the JavaScript function returns."""
        return self.do(lambda page: page.evaluate(script, argument))

    def take_clock(self) -> None:
        """Let the timers of the pages wait for ``pass_time``. Before the first page."""
        self.do(lambda page: page.clock.install())

    def pass_time(self, seconds: int) -> None:
        self.do(lambda page: page.clock.fast_forward(1000 * seconds))

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is shown to a PNG; the page to its end if it is the ``whole``."""
        self.do(lambda page: page.screenshot(path=path, full_page=whole, animations="disabled"))

    def close(self) -> None:
        self._chromium.run(self._context.close)
