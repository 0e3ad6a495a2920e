"""Says which release of EMS this process runs, and where the documentation of it is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

# What ``streams.__version__`` is where the package is not installed, as in a checkout on the path.
UNKNOWN = "0+unknown"


@cache
def version() -> str | None:
    """Return the version of the installed package; None if it is not installed."""
    try:
        return metadata("django-ems")["Version"]
    except PackageNotFoundError:
        return None


def documentation(page: str) -> str:
    """Return where a page of docs/ is, such as ``guides/failover.md#restore-a-backup``.

    The site has a folder for each version, below the address that pyproject.toml gives as
    Documentation. Without such an address it is the file in the sources of this version.
    """
    if (site := _site()) is None:
        return f"docs/{page} of EMS {version() or UNKNOWN}"
    path, mark, heading = page.partition("#")
    return f"{site}/{version()}/{path.removesuffix('.md')}.html{mark}{heading}"


@cache
def _site() -> str | None:
    if version() is None:
        return None
    for line in metadata("django-ems").get_all("Project-URL", ()):
        label, _, address = line.partition(",")
        if label.strip() == "Documentation":
            return str(address).strip().rstrip("/")
    return None
