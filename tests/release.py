"""``make release`` builds what is published, checks it, and stops before the upload.

It works on a commit: sdist and wheel, which is built from the sdist, with their SHA-256 sums and a
bill of materials (CycloneDX), come into dist/. docs/contributing/release.md has the steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PACKAGES = ("streams", "monitoring", "sparkjobs")
UPLOT = ROOT / "monitoring/static/ems_monitoring/uplot/uPlot.iife.min.js"
# What must not be published as an extra.
OURS = {"dev", "test", "docs", "browser", "release"}
REQUIREMENT = re.compile(r"^([\w.-]+)\s*(?:\[[^]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?$")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", allow_abbrev=False)
    parser.add_argument("--draft", action="store_true", help="look at the files only")
    draft = parser.parse_args().draft
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    sdist, wheel = build(version)
    metadata = metadata_of(wheel)
    wrong = [*wrong_files(sdist, wheel, version), *wrong_metadata(metadata, project)]
    bill = DIST / f"django_ems-{version}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(metadata, wheel), indent=1) + "\n")
    files = (sdist, wheel, bill)
    sums = "".join(f"{digest(one)}  {one.name}\n" for one in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    for text in wrong:
        print(f"wrong: {text}")
    open_points = [] if draft else list(not_ready(version))
    for text in open_points:
        print(f"not ready: {text}")
    if draft or wrong or open_points:
        return int(bool(wrong or open_points))
    print(
        f"\nReady. Nothing was uploaded. In a job that has an identity (OIDC) and no secret, say:\n"
        f"  python -m pypi_attestations sign {sdist.relative_to(ROOT)} {wheel.relative_to(ROOT)}\n"
        f"  python -m twine upload --attestations dist/django_ems-{version}*.tar.gz"
        f" dist/django_ems-{version}*.whl dist/*.publish.attestation\n"
        f"and put SHA256SUMS and {bill.name} beside the notes of the release."
    )
    return 0


def build(version: str) -> tuple[Path, Path]:
    """Return the sdist of what is committed, and the wheel made of it."""
    shutil.rmtree(DIST, ignore_errors=True)
    # So that the same commit gives the same bytes.
    env = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct")}
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT], check=True, env=env)
    return DIST / f"django_ems-{version}.tar.gz", next(DIST.glob(f"django_ems-{version}-*.whl"))


def metadata_of(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def wrong_files(sdist: Path, wheel: Path, version: str) -> Iterator[str]:
    """Yield what is missing in the archives, or is there and was never committed."""
    tracked = set(git("ls-files").splitlines())
    packaged = {one for one in tracked if one.startswith(tuple(f"{name}/" for name in PACKAGES))}
    info = f"django_ems-{version}.dist-info/"
    with ZipFile(wheel) as archive:
        names = {one for one in archive.namelist() if not one.startswith(info)}
    yield from (f"{one} is not in the wheel" for one in sorted(packaged - names))
    yield from (f"{one} is in the wheel and was not committed" for one in sorted(names - packaged))
    with tarfile.open(sdist) as tar:
        inside = {one.name.partition("/")[2] for one in tar.getmembers() if one.isfile()}
    left_out = {one for one in tracked if one.startswith(".")}
    missing = tracked - left_out - inside
    yield from (f"{one} is not in the sdist" for one in sorted(missing))
    more = inside - tracked - {"PKG-INFO"}
    yield from (f"{one} is in the sdist and was not committed" for one in sorted(more))


def wrong_metadata(metadata: Message, project: dict[str, Any]) -> Iterator[str]:
    for name in ("version", "license"):
        field = {"version": "Version", "license": "License-Expression"}[name]
        if metadata[field] != project[name]:
            yield f"{field} is {metadata[field]}, and not {project[name]}"
    for path in project["license-files"]:
        if path not in metadata.get_all("License-File", []):
            yield f"the licence {path} is not in the wheel"
    for extra in OURS & set(metadata.get_all("Provides-Extra", [])):
        yield f"the extra {extra} is published"
    for link in re.findall(r"\]\((?!https://)([^)]*)\)", str(metadata.get_payload())):
        yield f"the README has a link that leads nowhere outside of the sources: {link}"


def not_ready(version: str) -> Iterator[str]:
    """Yield what is missing around the files: in the changelog and in git."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {re.escape(version)} [-–] (\d{{4}}-\d\d-\d\d)$", changelog, re.M)
    if section is None:
        yield f"CHANGELOG.md has no section “## {version} – YYYY-MM-DD”"
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if unreleased and unreleased[1].strip():
        yield "CHANGELOG.md has lines under Unreleased"
    if f"### {version}\n" not in (ROOT / "UPGRADING.md").read_text():
        yield f"UPGRADING.md has no section “### {version}”"
    if changed := git("status", "--porcelain"):
        yield f"the work tree is not what is committed:\n{changed}"
    if f"v{version}" not in git("tag", "--points-at", "HEAD").split():
        yield f"this commit has no tag v{version}: git tag -s v{version}"


def bill_of_materials(metadata: Message, wheel: Path) -> dict[str, Any]:
    """Return what the wheel contains and what it needs, as CycloneDX 1.6.

    The versions that are needed are ranges: which ones are installed is the choice of the project.
    """
    version = metadata["Version"]
    own = f"pkg:pypi/django-ems@{version}"
    needed = [component(one) for one in metadata.get_all("Requires-Dist", [])]
    needed = [one for one in needed if one["name"] != "django-ems"]
    found = re.search(r"\(v([\d.]+)\)", UPLOT.read_text()[:200])
    assert found, "the first line of uPlot says its version"
    uplot = {
        "type": "library",
        "bom-ref": f"pkg:npm/uplot@{found[1]}",
        "name": "uplot",
        "version": found[1],
        "purl": f"pkg:npm/uplot@{found[1]}",
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": digest(UPLOT)}],
        "scope": "required",
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + digest(wheel))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(
                int(git("log", "-1", "--format=%ct")), UTC
            ).isoformat(),
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "django-ems",
                "version": version,
                "purl": own,
                "licenses": [{"expression": metadata["License-Expression"]}],
                "hashes": [{"alg": "SHA-256", "content": digest(wheel)}],
                "components": [uplot],
            },
        },
        "components": needed,
        "dependencies": [
            {
                "ref": own,
                "dependsOn": [one["bom-ref"] for one in needed if one["scope"] == "required"],
            }
        ],
    }


def component(requirement: str) -> dict[str, Any]:
    match = REQUIREMENT.match(requirement)
    assert match, requirement
    name, versions, condition = match.groups()
    name = re.sub(r"[-_.]+", "-", name).lower()
    properties = [{"name": "ems:versions", "value": versions or "any"}]
    if condition:
        properties.append({"name": "ems:when", "value": condition})
    return {
        "type": "library",
        "bom-ref": f"requires:{requirement}",
        "name": name,
        "purl": f"pkg:pypi/{name}",
        "scope": "optional" if condition else "required",
        "properties": properties,
    }


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
