"""Finds the programs of the test servers. Standard library only.

Programs on PATH are used; otherwise Debian packages, unpacked without root into a cache folder and
wrapped so that they run from there. Nothing is installed, no service is started, and the system
stays as it was. The mirror is the one in the machine's own apt sources.

Debian's stable releases have MariaDB only, which hides real problems of MySQL, so MySQL comes
from the suite ``sid`` of the same mirror, together with the C library it was built against. So does
the MariaDB of Debian 13, which turns innodb_snapshot_isolation on, from ``trixie``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"

# Packages that only install scripts need: no program of the tests runs them.
NOT_UNPACKED = {"dpkg", "tar", "debconf", "perl", "perl-base", "cdebconf"}


class Unavailable(Exception):
    """Says that a package is unavailable; the message is one line for the developer."""


@dataclass(frozen=True)
class Package:
    """Names the main program of a server, and the Debian packages that have it."""

    program: str
    packages: tuple[str, ...]
    suite: str | None = None  # None: the machine's own
    version: str = ""  # what a program on PATH must say of its version, as a regular expression


PACKAGES = {
    "mariadb": Package("mariadbd", ("mariadb-server-core", "mariadb-client-core")),
    "mariadb-11": Package(
        "mariadbd",
        ("mariadb-server-core", "mariadb-client-core"),
        suite="trixie",
        version=r"Ver (11\.([6-9]|\d\d)|1[2-9]|[2-9]\d)\.",  # from 11.6 on
    ),
    # MariaDB installs itself as mysqld too.
    "mysql": Package(
        "mysqld",
        ("mysql-server-core", "mysql-client-core"),
        suite="sid",
        version=r"^(?!.*MariaDB)",
    ),
    "haproxy": Package("haproxy", ("haproxy",)),
    "redis": Package("redis-server", ("redis-server",)),
    "headers": Package("mariadb_config", ("libmariadb-dev", "libmariadb3")),
    "postgresql": Package("postgres", ("postgresql",)),
    "rabbitmq": Package("rabbitmq-server", ("rabbitmq-server",)),
    "gettext": Package("xgettext", ("gettext",)),
    "prometheus": Package("promtool", ("prometheus",)),
    "java-17": Package("java", ("openjdk-17-jre-headless",)),
    "java-21": Package("java", ("openjdk-21-jre-headless",)),
    "java-25": Package("java", ("openjdk-25-jre-headless",)),
}


@dataclass(frozen=True)
class Programs:
    """Holds the folder from which programs run; None means that they are on PATH."""

    root: Path | None = None

    @classmethod
    def find(cls, kind: str) -> Programs:
        """Return the programs of a server, from PATH or unpacked; raises Unavailable."""
        return cls() if _on_path(kind) else cls(unpacked(kind))

    def program(self, name: str) -> str:
        """Return the path of one program; raises Unavailable."""
        if self.root is None:
            found = shutil.which(name, path=SEARCH_PATH)
        else:
            found = next((str(p) for p in self.root.glob(f"usr/*bin/{name}")), None)
        if found is None:
            raise Unavailable(f"{name} not found in {self.root or 'PATH'}")
        return found

    def server_options(self) -> str:
        """Return lines of my.cnf that tell an unpacked server where its other files are."""
        if self.root is None:
            return ""
        usr = self.root / "usr"
        where = {
            "basedir": usr,
            "plugin-dir": next(usr.glob("lib/*/plugin"), None),
            "character-sets-dir": next(usr.glob("share/*/charsets"), None),
            "lc-messages-dir": next(usr.glob("share/*/english"), usr).parent,
        }
        return "".join(f"{option}={folder}\n" for option, folder in where.items() if folder)


def _on_path(kind: str) -> bool:
    package = PACKAGES[kind]
    program = shutil.which(package.program, path=SEARCH_PATH)
    if program is None or not package.version:
        return program is not None
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return bool(re.search(package.version, version))


def unpacked(kind: str) -> Path:
    """Return the folder with the unpacked packages of this kind; raises Unavailable."""
    root = cache_folder() / kind
    if root.exists():
        return root
    if not shutil.which("apt-get"):
        raise Unavailable(f"install {PACKAGES[kind].program}, or set {url_variable(kind)}")
    print(f"unpacking {kind} into {root} (once) …", file=sys.stderr, flush=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=root.parent) as work:
        new = Path(work) / "root"
        for deb in _download(PACKAGES[kind], Path(work)):
            subprocess.run(["dpkg", "-x", str(deb), str(new)], check=True)
        _relink(new)
        _wrap_programs(new, runs_from=root)
        try:
            new.rename(root)
        except OSError:
            if not root.exists():  # another process was faster: then its folder is as good
                raise
    return root


def url_variable(kind: str) -> str:
    """Return the environment variable that names a server of this kind."""
    return f"EMS_TEST_{kind.upper().replace('-', '_')}_URL"


def cache_folder() -> Path:
    """Return the folder in which unpacked programs are kept from run to run."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # The release is part of the name: an unpacked program belongs to the one it was made for.
    release = _os_release()
    name = "-".join(release.get(key, "") for key in ("ID", "VERSION_CODENAME"))
    return Path(cache) / "django-ems" / name


def _os_release() -> dict[str, str]:
    file = Path("/etc/os-release")
    lines = file.read_text().splitlines() if file.exists() else []
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def _download(package: Package, work: Path) -> list[Path]:
    """Download a package and all it depends on; raises Unavailable."""
    release = _os_release()
    own_suite = release.get("VERSION_CODENAME", "")
    keyring = f"/usr/share/keyrings/{release.get('ID')}-archive-keyring.gpg"
    reasons = ["no mirror found in the apt sources"]
    for uri, components in _mirrors(own_suite):
        sources = work / "sources.list"
        suite, parts = (package.suite, "main") if package.suite else (own_suite, components)
        sources.write_text(f"deb [signed-by={keyring}] {uri} {suite} {parts}\n")
        options = _apt_options(work, sources)
        try:
            _apt(*options, "update")
            _apt(*options, "install", "--yes", "--download-only", *package.packages)
        except Unavailable as reason:
            reasons.append(str(reason))
            continue
        debs = (work / "cache/archives").glob("*.deb")
        return [deb for deb in debs if deb.name.partition("_")[0] not in NOT_UNPACKED]
    raise Unavailable(f"{package.program} is not on PATH and cannot be unpacked: {reasons[-1]}")


def _apt_options(work: Path, sources: Path) -> list[str]:
    """Return options with which apt changes no lock, list or state of the system."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "state/status").touch()
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": work / "state",
        "Dir::State::Lists": work / "state/lists",
        "Dir::State::Status": work / "state/status",  # empty: so every dependency is fetched
        "Dir::Cache": work / "cache",
        "Dir::Cache::Archives": work / "cache/archives",
        "Acquire::Languages": "none",
        "APT::Install-Recommends": "false",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _apt(*words: str) -> None:
    done = subprocess.run(["apt-get", "-qq", *words], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])


def _mirrors(suite: str) -> Iterator[tuple[str, str]]:
    """Yield (uri, components) of the configured apt sources that offer this suite."""
    folder = Path("/etc/apt")
    for path in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]:
        text = path.read_text() if path.exists() else ""
        for line in re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(.+)", text, re.MULTILINE):
            uri, its_suite, *components = line.partition("#")[0].split()
            if its_suite == suite:
                yield uri, " ".join(components)
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^([\w-]+):\s*((?:.|\n[ \t])*)", stanza, re.MULTILINE))
            enabled = fields.get("Enabled", "yes").strip() == "yes"
            if enabled and suite in fields.get("Suites", "").split():
                for uri in fields.get("URIs", "").split():
                    yield uri, " ".join(fields.get("Components", "").split())


def _relink(root: Path) -> None:
    """Let links to files of the same packages lead to them; Java's settings are links to /etc."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        target = link.readlink()
        own = root / str(target).lstrip("/")
        if target.is_absolute() and own.exists():
            link.unlink()
            link.symlink_to(os.path.relpath(own, link.parent))


def _wrap_programs(root: Path, *, runs_from: Path) -> None:
    """Make each program start with the dynamic loader and the libraries that came with it."""
    loaders = [p for p in root.rglob("ld-linux*.so.*") if not p.is_symlink()]
    if not loaders:
        raise Unavailable(f"no dynamic loader among the packages in {root}")
    libraries = {
        lib.parent
        for lib in root.rglob("*.so.*")
        if re.search(r"\.so[.\d]+$", lib.name) and "plugin" not in lib.parts
    }
    paths = ":".join(str(runs_from / folder.relative_to(root)) for folder in sorted(libraries))
    loader = runs_from / loaders[0].relative_to(root)
    for program in [*root.glob("usr/bin/*"), *root.glob("usr/sbin/*")]:
        if program.is_symlink() or program.read_bytes()[:4] != b"\x7fELF":
            continue
        real = program.with_name(program.name + ".real")
        program.rename(real)
        program.write_text(
            f'#!/bin/sh\nexec "{loader}" --library-path "{paths}" --argv0 "$0" '
            f'"{runs_from / real.relative_to(root)}" "$@"\n'
        )
        program.chmod(0o755)
