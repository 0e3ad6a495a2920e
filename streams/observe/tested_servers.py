"""Names the servers that the tests run on, and the oldest ones on which EMS can work."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True)
class KnownServer:
    """A kind of server, with the series that the tests run on, the oldest first."""

    name: str
    oldest: Version  # the first with FOR UPDATE SKIP LOCKED
    series: tuple[Version, ...]

    def is_untested(self, version: Version) -> bool:
        """Tell whether a version is older than all that is tested."""
        return version < self.series[0]

    def __str__(self) -> str:
        return f"{self.name} {' and '.join(text(one) for one in self.series)}"


MARIADB = KnownServer("MariaDB", (10, 6), ((10, 11), (11, 8)))
MYSQL = KnownServer("MySQL", (8, 0, 11), ((9, 7),))
KINDS = (MYSQL, MARIADB)


def text(version: Version) -> str:
    return ".".join(map(str, version))
