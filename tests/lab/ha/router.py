"""The way to the server that is the primary now, as a proxy before MySQL offers it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any, Self

from tests.packages import Programs
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "guides" / "failover.md"

CHUNK = 65_536


class Router:
    """``with Router(port) as router:`` listens on ``router.port``, and forwards to 127.0.0.1."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._links: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()  # clear while the network is cut
        self._thread = threading.Thread(target=self._loop.run_forever, name="router", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._whole.set()
        self._call(self._listen())
        return self

    def __exit__(self, *exception: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def move(self, target: int) -> None:
        """Forward new connections there, and end the old ones: nobody reaches the old primary."""
        self._call(self._move(target))

    def cut(self) -> None:
        """Let nothing through, and say nothing: connections stay open, new ones wait."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        """Let through again what has waited."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def _call(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _move(self, target: int) -> None:
        self._target = target
        await self._end_links()

    async def _close(self) -> None:
        self._server.close()
        await self._end_links()

    async def _end_links(self) -> None:
        links = [*self._links]
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._links.add(task)
        try:
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                there = asyncio.create_task(self._copy(reader, far_writer))
                back = asyncio.create_task(self._copy(far_reader, writer))
                try:
                    await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    there.cancel()
                    back.cancel()
            finally:
                far_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # no server, or the link was ended: the client sees its connection closed
        finally:
            self._links.discard(task)
            writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()


class HAProxy(Server):
    """Runs HAProxy before two servers, with the configuration that the guide shows.

    It sees by itself which of them answers: it need not be moved.
    """

    kind = "haproxy"

    def __init__(self, first: int, second: int) -> None:
        super().__init__(Programs.find("haproxy"))
        self.words = {"3306": self.port, "10.0.0.1:3306": first, "10.0.0.2:3306": second}

    def prepare(self) -> None:
        text = configuration()
        for of_guide, here in (
            ("bind :3306", f"bind 127.0.0.1:{self.port}"),
            ("10.0.0.1:3306", f"127.0.0.1:{self.words['10.0.0.1:3306']}"),
            ("10.0.0.2:3306", f"127.0.0.1:{self.words['10.0.0.2:3306']}"),
        ):
            assert text.count(of_guide) == 1, f"{of_guide} is not in the guide's configuration"
            text = text.replace(of_guide, here)
        (self.folder / "haproxy.cfg").write_text(text)

    def command(self) -> list[str]:
        return [self.programs.program("haproxy"), "-db", "-f", f"{self.folder}/haproxy.cfg"]

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        self.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def move(self, target: int) -> None:
        """Do nothing: it looks by itself."""


def configuration() -> str:
    """Return the configuration of HAProxy that the guide shows."""
    _before, _fence, rest = GUIDE.read_text().partition("```haproxy\n")
    return rest.partition("```")[0]
