"""Clients that tools of others generate from the OpenAPI file work as they come out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.http.contract import FILE
from tests.http.servers import Web
from tests.packages import cache_folder

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.any_database,
    pytest.mark.timeout(900),  # the tools are fetched once
    pytest.mark.usefixtures("transactional_db"),
]

StartWeb = Callable[..., Web]
RIGHTS = ("send:orders", "consume:orders/*", "read:orders", "prepare:shop", "check:*")
FOLDER = cache_folder().parent / "generators"
OF_NODE = ("openapi-typescript@7", "openapi-fetch@0", "typescript@5")
OF_PYTHON = "openapi-python-client"

TYPESCRIPT = """\
import createClient from "openapi-fetch";
import type { components, paths } from "./ems.js";

type Schemas = components["schemas"];
type Send = paths["/v1/topics/{topic}/messages"]["post"];
type Refused = Send["responses"][404]["content"]["application/problem+json"]["code"];

// What may be left out may be left out, and what is always there is.
const content: Schemas["Content"] = { body: { number: 7 } };
const pull: Schemas["Pull"] = { client: "one" };
const prepared: Schemas["NewPrepared"] = {
  biz: "shop", biz_key: "A7", topic: "orders", checker: "nobody",
};
const next = (page: Schemas["Page_MessageHead_"]): string | null => page.next;
const known: Refused = "unknown_partition";
// @ts-expect-error there is no such code
const unknown: Refused = "unknown_planet";

const [baseUrl, token] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const ems = createClient<paths>({ baseUrl, headers });
const path = { topic: "orders", group: "mail" };

await ems.PUT("/v1/topics/{topic}/groups/{group}", { params: { path }, body: {} });
const sent = await ems.POST("/v1/topics/{topic}/messages", {
  params: { path: { topic: "orders" } }, body: content,
});
const message: number = sent.data!.message_id;
let numbers: unknown[] = [];
while (numbers.length === 0) {
  const got = await ems.POST("/v1/topics/{topic}/groups/{group}/pull", {
    params: { path }, body: { ...pull, hold: 5 },
  });
  for (const delivery of got.data!.deliveries) {
    numbers = delivery.messages.map((one) => one.body);
    const results = delivery.messages.map((one) => ({ offset: one.offset }));
    const settled = await ems.POST("/v1/deliveries/ack", {
      body: { receipt: delivery.receipt, results },
    });
    if (settled.data!.open !== 0) throw new Error("not settled");
  }
}
const refused = await ems.POST("/v1/prepared", { body: prepared });
const said = [message > 0, numbers, refused.error!.code, known, unknown && next.length];
console.log(JSON.stringify(said));

declare const process: { argv: string[] };
"""

PYTHON = """\
import importlib, json, pkgutil, sys
import ems_client
for one in pkgutil.walk_packages(ems_client.__path__, "ems_client."):
    importlib.import_module(one.name)
from ems_client import AuthenticatedClient
from ems_client.api.consume import acknowledge, make_group, pull
from ems_client.api.produce import send_message
from ems_client.api.two_phase import prepare_message
from ems_client.models import (
    Ack, Content, NewGroup, NewPrepared, Problem404, Problem422, Pull, ResultIn, Sent,
)
ems = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
make_group.sync("orders", "mail", client=ems, body=NewGroup())
sent = send_message.sync("orders", client=ems, body=Content(body={"number": 7}))
assert isinstance(sent, Sent), sent
bodies = []
while not bodies:
    for delivery in pull.sync(
        "orders", "mail", client=ems, body=Pull(client="one", hold=5)
    ).deliveries:
        bodies = [one.body for one in delivery.messages]
        results = [ResultIn(offset=one.offset) for one in delivery.messages]
        settled = acknowledge.sync(client=ems, body=Ack(delivery.receipt, results))
        assert settled.open_ == 0
refused = prepare_message.sync(
    client=ems, body=NewPrepared(biz="shop", biz_key="A7", topic="orders", checker="nobody")
)
assert isinstance(refused, Problem422), refused
missing = send_message.sync("orders", client=ems, body=Content(body=1, partition=9))
assert isinstance(missing, Problem404), missing
print(json.dumps([sent.message_id > 0, bodies, refused.code.value, missing.code.value]))
"""


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [str(one) for one in command],
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def installed(name: str, *command: object) -> Path:
    """Return the folder ``name`` of the cache, in which ``command`` has run to its end once."""
    folder = FOLDER / name
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(*command, cwd=folder)
        (folder / "done").touch()
    return folder


def test_openapi_typescript(web: StartWeb, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("NOT TESTED: there is no npm, so nobody has seen that types are generated")
    tools = installed("node", npm, "install", "--prefix", ".", *OF_NODE)
    bin_ = tools / "node_modules" / ".bin"
    (tmp_path / "node_modules").symlink_to(tools / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "main.ts").write_text(TYPESCRIPT)
    run(bin_ / "openapi-typescript", FILE, "-o", tmp_path / "ems.d.ts", cwd=tmp_path)
    options = [
        "--strict",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--skipLibCheck",
        "--lib",
        "es2022,dom",
    ]
    run(bin_ / "tsc", *options, "main.ts", cwd=tmp_path)
    server = web("uvicorn", *RIGHTS)
    said = run("node", "main.js", f"http://127.0.0.1:{server.port}/ems", server.token, cwd=tmp_path)
    assert said.strip() == ('[true,[{"number":7}],"unknown_checker","unknown_partition",1]')


def test_openapi_python_client(web: StartWeb, tmp_path: Path) -> None:
    python = FOLDER / "python" / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER / "python", with_pip=True)
    installed("python", python, "-m", "pip", "install", "-q", OF_PYTHON, "python-dateutil", "httpx")
    tool = python.with_name(OF_PYTHON)
    made = tmp_path / "made"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # ruff lays the files out
    options = ("--path", FILE, "--output-path", made, "--fail-on-warning")
    run(tool, "generate", *options, cwd=tmp_path, PATH=path)
    server = web("uvicorn", *RIGHTS)
    (tmp_path / "main.py").write_text(PYTHON)
    url = f"http://127.0.0.1:{server.port}/ems"
    said = run(python, "main.py", url, server.token, cwd=tmp_path, PYTHONPATH=str(made))
    assert said.strip() == '[true, [{"number": 7}], "unknown_checker", "unknown_partition"]'
