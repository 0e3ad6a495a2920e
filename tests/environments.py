"""Makes the virtual environments of the checkout when first needed. Standard library only.

.venv-demo   what the demo needs: no compiler
.venv-docs   what builds the documentation
.venv-release  what builds the package that is published
.venv-fast   for the quick targets where .venv does not exist: no compiler either
.venv        for the whole suite, with the MySQL driver, which is compiled
.venv-peers  for the comparison with other systems
.venv-6.0    and so on: for the quick tests on that version of Django
.venv-edx    with openedx-events, whose event bus a page of the docs builds over EMS
.venv-spark  with the oldest pyspark that the jobs, the source and the sink work with
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from tests import pythons
from tests.packages import cache_folder, unpacked

ROOT = Path(__file__).resolve().parent.parent
STAMP = "ems-stamp"  # a file in the environment: for which pyproject.toml it was filled

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

# The versions of Django that EMS supports, and the versions of Python on which each is tested: the
# first available one. Django 6 needs 3.12; the newest runs on another one, so that all are tested.
DJANGOS = {
    "5.2": ("3.11", "3.12", "3.13", "3.14"),
    "6.0": ("3.12", "3.13", "3.14"),
    "6.1": ("3.13", "3.14", "3.12"),
}
# No extra has it. It refuses the newest Django: there Celery is tested without it.
BEAT = "django-celery-beat>=2.8"
WITHOUT_BEAT = {"6.1"}

# The first version of what the extra "spark" allows.
OLDEST_PYSPARK = "4.1.0"

FULL = "mysql,pymysql,redis,celery,tasks,spark,metrics,otel,api,relay,demo"
LIGHT = "redis,celery,tasks,metrics,otel,api,relay,demo"


# What EMS is compared with: make peers.
PEERS = (
    *("django-tasks-db", "django-ox", "celery[redis]", "dramatiq[redis]", "huey"),
    *("procrastinate", "psycopg[binary]"),
)


class Missing(Exception):
    """Says that something is missing that only the developer can install; the message says what."""


def demo(*, spark: bool = False) -> Path:
    """Return the Python of the demo's environment. The project itself runs from the checkout.

    With ``spark`` it has pyspark, too, and keeps it.
    """
    project = _project()
    extras = project["optional-dependencies"]
    plain = [*project["dependencies"], *extras["demo"]]
    if spark or has_spark():
        return _filled(".venv-demo", [*plain, *extras["spark"]])
    return _filled(".venv-demo", plain)


def has_spark() -> bool:
    """Tell whether the demo's environment has pyspark already."""
    return any(ROOT.glob(".venv-demo/lib/*/site-packages/pyspark"))


def docs() -> Path:
    """Return the Python that builds the documentation; it does not import the project."""
    return _filled(".venv-docs", _group("docs"))


def release() -> Path:
    """Return the Python that builds the package."""
    return _filled(".venv-release", _group("release"))


def light() -> Path:
    """Return the Python for what needs no server: that of .venv if it exists."""
    if (ROOT / ".venv" / STAMP).exists():
        return full()
    return _filled(".venv-fast", [*_editable(LIGHT), BEAT, *_group("test")])


def full() -> Path:
    """Return the Python for the whole suite."""
    requirements = [*_editable(FULL), BEAT, *_group("test"), *_group("browser")]
    if _is_current(ROOT / ".venv", requirements):
        return _python(ROOT / ".venv")
    return _filled(".venv", requirements, env=compiler_environment())


def peers() -> Path:
    """Return the Python with EMS and its peers; raises Missing."""
    requirements = [*_editable("mysql,redis"), *PEERS, "Django==6.0.*"]
    env = compiler_environment()
    return _filled(".venv-peers", requirements, env=env, python=python_for("6.0"))


def of_django(version: str) -> Path:
    """Return the Python of an environment with this version of Django; raises Missing."""
    python = python_for(version)
    beat = [] if version in WITHOUT_BEAT else [BEAT]
    requirements = [*_editable(LIGHT), *beat, *_group("test"), f"Django=={version}.*"]
    return _filled(f".venv-{version}", requirements, python=python)


def open_edx() -> Path:
    """Return the Python of an environment with openedx-events; raises Missing."""
    return _filled(".venv-edx", ["--editable", ".", "openedx-events>=10.5,<11"])


def oldest_pyspark() -> Path:
    """Return the Python of an environment with the oldest pyspark; raises Missing."""
    requirements = [*_editable("mysql,spark"), f"pyspark=={OLDEST_PYSPARK}"]
    return _filled(".venv-spark", requirements, env=compiler_environment())


def python_for(django: str) -> str:
    """Return a Python on which this version of Django is tested; raises Missing."""
    wanted = DJANGOS[django]
    python = next(filter(None, map(pythons.find, wanted)), None)
    if python is None:
        raise Missing(f"no Python {' or '.join(wanted)} on PATH or in pyenv")
    return python


def _editable(extras: str) -> list[str]:
    return ["--editable", f".[{extras}]"]


def _filled(
    name: str,
    requirements: list[str],
    env: dict[str, str] | None = None,
    python: str = sys.executable,
) -> Path:
    """Create the environment and install into it, unless that was done for this pyproject.toml."""
    folder = ROOT / name
    if not _is_current(folder, requirements):
        print(f"filling {name} …", file=sys.stderr, flush=True)
        _create(folder, python)
        words = [str(_python(folder)), "-m", "pip", "install", "-qq", *requirements]
        if subprocess.run(words, cwd=ROOT, env={**os.environ, **(env or {})}).returncode:
            raise Missing("pip could not install what is needed: see above")
        (folder / STAMP).write_text(_stamp(requirements))
    return _python(folder)


def _create(folder: Path, python: str) -> None:
    version = _version(python)
    if _works(folder, version):
        return
    ways: list[list[str]] = [
        [python, "-m", "venv"],
        [python, "-m", "virtualenv"],
        ["uv", "venv", "--seed", "--python", python],
    ]
    for way in ways:
        shutil.rmtree(folder, ignore_errors=True)
        if shutil.which(way[0]):
            subprocess.run([*way, str(folder)], capture_output=True)
        if _works(folder, version):
            return
    raise Missing(f"install python{version}-venv (or uv)")


def _works(folder: Path, version: str) -> bool:
    python = _python(folder)
    check = [
        str(python),
        "-c",
        f"import pip, sys; sys.exit(not sys.version.startswith('{version}.'))",
    ]
    return python.exists() and subprocess.run(check, capture_output=True).returncode == 0


def _version(python: str) -> str:
    if python == sys.executable:
        return PYTHON
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_current(folder: Path, requirements: list[str]) -> bool:
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == _stamp(requirements)


def _stamp(requirements: list[str]) -> str:
    # The project's part only: an edit of the lint rules needs no other environment.
    project = json.dumps(_project(), sort_keys=True)
    return hashlib.sha256(f"{PYTHON} {requirements} {project}".encode()).hexdigest()


def _project() -> dict[str, Any]:
    project: dict[str, Any] = _pyproject()["project"]
    return project


def _group(name: str) -> list[str]:
    """Return the requirements of a dependency group: pip has ``--group`` from 25.1 on only."""
    found: list[str] = []
    for one in _pyproject()["dependency-groups"][name]:
        found += [one] if isinstance(one, str) else _group(one["include-group"])
    return found


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def compiler_environment() -> dict[str, str]:
    """Return the environment in which pip compiles the MySQL driver: installed, or unpacked."""
    missing = []
    if not shutil.which("gcc"):
        missing += ["gcc", "libc6-dev"]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append(f"python{PYTHON}-dev")
    headers = _has_mysql_headers()
    as_root = _root_command()
    if as_root is not None and (missing or not headers):
        wanted = [*missing, *([] if headers else ["default-libmysqlclient-dev", "pkg-config"])]
        print(f"installing {' '.join(wanted)} …", file=sys.stderr, flush=True)
        install = [*as_root, "apt-get", "-qq", "-y", "--no-install-recommends", "install"]
        subprocess.run([*as_root, "apt-get", "-qq", "update"], stdout=subprocess.DEVNULL)
        if subprocess.run([*install, *wanted], stdout=subprocess.DEVNULL).returncode == 0:
            return {}
    if missing:
        raise Missing(f"install {' '.join(missing)} (to compile the MySQL driver)")
    return {} if headers else _unpacked_headers()


def _has_mysql_headers() -> bool:
    if not shutil.which("pkg-config"):
        return False
    names = ["libmariadb", "mysqlclient", "mariadb"]
    return any(subprocess.run(["pkg-config", "--exists", n]).returncode == 0 for n in names)


def _root_command() -> list[str] | None:
    """Return how to run apt-get as root without a password; None if it cannot be run."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
        return [sudo, "-n"]
    return None


def _unpacked_headers() -> dict[str, str]:
    root = unpacked("headers")
    library = next(root.glob("usr/lib/*/libmariadb.so.*"))
    folder = library.parent
    return {
        "MYSQLCLIENT_CFLAGS": f"-I{root}/usr/include/mariadb",
        "MYSQLCLIENT_LDFLAGS": f"-L{folder} -Wl,-rpath,{folder} -l:{library.name}",
    }


def driver_environment() -> dict[str, str]:
    """Return what a process needs to use a driver that was compiled with unpacked headers."""
    # Without its plugins the library cannot log in to MySQL (caching_sha2_password).
    plugins = next(cache_folder().glob("headers/usr/lib/*/libmariadb3/plugin"), None)
    return {"MARIADB_PLUGIN_DIR": str(plugins)} if plugins else {}
