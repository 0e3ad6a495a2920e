"""Runs ``python -m sparkjobs JOB``; spark-submit takes this file as well."""

from __future__ import annotations

import argparse
import pkgutil
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from sparkjobs import jobs
from sparkjobs.config import VARIABLE, Config
from sparkjobs.databases import each
from sparkjobs.errors import SparkJobsError
from sparkjobs.progress import shown

INSTALL = "pyspark is not installed: pip install 'django-ems[spark]', and Java 17 or newer"


def main(words: Sequence[str]) -> int:
    """Run one job; return its exit status. An error that the caller can correct is one line."""
    names = sorted(module.name for module in pkgutil.iter_modules(jobs.__path__))
    parser = argparse.ArgumentParser(prog="python -m sparkjobs", allow_abbrev=False)
    parser.add_argument(
        "--config", default="", help=f"the option file, or a folder of them, by default ${VARIABLE}"
    )
    parser.add_argument("--seconds", type=int, default=0, help="end the job if it takes longer")
    parser.add_argument("job", choices=names, metavar="JOB", help=" | ".join(names))
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="of the job")
    options = parser.parse_args(words)
    # The default action of SIGALRM ends the process, whatever it waits for, and with it its JVM.
    signal.alarm(options.seconds)
    if find_spec("pyspark") is None:
        print(INSTALL, file=sys.stderr)
        return 1
    job = import_module(f"sparkjobs.jobs.{options.job}")
    own = argparse.ArgumentParser(
        prog=f"{parser.prog} {options.job}", description=job.__doc__, allow_abbrev=False
    )
    job.add_arguments(own)
    given = own.parse_args(options.words)
    try:
        with shown(options.job) if options.job != "serve" else nullcontext():
            return _run(job, options.job, Config.load_all(options.config), given)
    except SparkJobsError as error:
        print(f"{options.job}: {error}", file=sys.stderr)
        return 1


def _run(job: ModuleType, name: str, configs: Sequence[Config], given: argparse.Namespace) -> int:
    """Run the job on each database, or, if it has ``run_all``, once with all of them."""
    if hasattr(job, "run_all"):
        return int(job.run_all(configs, given))
    return each(name, configs, lambda config: int(job.run(config, given)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
