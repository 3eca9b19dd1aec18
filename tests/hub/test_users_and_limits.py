# SPDX-License-Identifier: MIT
"""Users of an identity provider, and what systemd is told about a learner's memory, cores and rights.

The provider and systemd are pretended; the hub and its spawner are real. Passwords of the machine (PAM) are tried where
users can be made: in the image, by tests/hub/test_images.py.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from hub.pretend import pretend_hub_machine
from tests.hub.learner import Learner
from tests.hub.running_hub import MISSING, PYTHON, ROOT, Hub, hub_is_installed

pytestmark = [
    pytest.mark.skipif(not hub_is_installed(), reason=MISSING),
    pytest.mark.skipif(os.geteuid() != 0, reason="a hub whose servers run as other users is started by root"),
]
# Two users that every Debian has, none of whom logs in.
MEMBER, OTHER = pwd.getpwuid(1).pw_name, pwd.getpwuid(2).pw_name

# systemd-run writes down what it is asked to do; systemctl then says that there is no such unit.
SYSTEMD = """#!/bin/sh
case "$0" in
*/systemd-run) for word in "$@"; do printf '%s\\n' "$word"; done >> "$(dirname "$0")/asked"; exit 0 ;;
esac
[ "$1" = --version ] && echo "systemd 252 (252.39)" && exit 0
exit 3
"""


class Provider(BaseHTTPRequestHandler):
    """OAuth 2 in three answers: who asks to log in is whoever ``identity`` says."""

    identity = MEMBER

    def say(self, data):
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        address = urlsplit(self.path)
        if address.path == "/userdata":
            self.say({"preferred_username": self.headers["Authorization"].removeprefix("Bearer token-of-")})
            return
        asked = {k: v[0] for k, v in parse_qs(address.query).items()}
        assert asked["client_id"] == "the-hub" and asked["redirect_uri"].endswith("/hub/oauth_callback")
        self.send_response(302)
        answer = {"code": f"code-of-{self.identity}", "state": asked["state"]}
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode(answer)}")
        self.end_headers()

    def do_POST(self):
        sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        name = sent["code"][0].removeprefix("code-of-")
        self.say({"access_token": f"token-of-{name}", "token_type": "bearer"})

    def log_message(self, *words):
        pass


class SystemdHub(Hub):
    """A hub with users of a provider, on a pretended machine with systemd."""

    def __init__(self, folder, provider):
        self.systemd = folder / "systemd"
        self.systemd.mkdir()
        for name in ("systemd-run", "systemctl"):
            (self.systemd / name).write_text(SYSTEMD)
            (self.systemd / name).chmod(0o755)
        self.provider = provider
        super().__init__(folder, gpus=1)

    def start(self):
        (Path(self.env["ROCM_GUIDE_HUB_ROOT"]) / "run/systemd/system").mkdir(parents=True)
        given = {"USERS": "oauth", "ADMINS": MEMBER, "MEMORY": "3G", "CORES": "1.5", "OAUTH_CLIENT_ID": "the-hub"}
        given |= {"OAUTH_CLIENT_SECRET": "s", "OAUTH_USERNAME_CLAIM": "preferred_username"}
        given |= {f"OAUTH_{k}_URL": f"{self.provider}/{k.lower()}" for k in ("AUTHORIZE", "TOKEN", "USERDATA")}
        self.env |= {f"ROCM_GUIDE_HUB_{k}": v for k, v in given.items()}
        self.env["PATH"] = f"{self.systemd}:{self.env['PATH']}"
        super().start()


@pytest.fixture
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(tmp_path, provider):
    hub = SystemdHub(tmp_path, provider)
    yield hub
    hub.end()
    shutil.rmtree(hub.state, ignore_errors=True)
    # Where the real spawner lays a unit's variables.
    shutil.rmtree(f"/run/jupyter-{MEMBER}-singleuser", ignore_errors=True)


def test_a_provider_says_who_it_is_and_systemd_what_they_may_take(hub, monkeypatch):
    member, other = Learner(hub.url, MEMBER, ""), Learner(hub.url, OTHER, "")
    assert member.http.get(f"{hub.url}/hub/oauth_login?next=%2Fhub%2Fhome").url.path == "/hub/home", hub.said()[-2000:]
    assert member.user()["admin"]
    # A user of the machine whom nobody has added is known to the provider, and does not get in.
    monkeypatch.setattr(Provider, "identity", OTHER)
    assert other.http.get(f"{hub.url}/hub/oauth_login").status_code == 403
    forged = httpx.get(f"{hub.url}/hub/oauth_callback?code=code-of-{MEMBER}&state=x", trust_env=False)
    assert forged.status_code in (400, 403), "an answer that nobody asked for"

    member.ask_for_server()
    asked = set((hub.systemd / "asked").read_text().splitlines())
    limits = {f"MemoryMax={3 * 2**30}", "CPUQuota=150%", "PrivateTmp=yes", "NoNewPrivileges=yes"}
    assert {f"--property={limit}" for limit in limits} <= asked
    assert f"--uid={pwd.getpwnam(MEMBER).pw_uid}" in asked and "hub.start_server" in asked
    assert "--KernelManager.transport=ipc" in asked


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"USERS": "ldap"}, "choose trial, system or oauth"),
        ({"USERS": "oauth"}, "ROCM_GUIDE_HUB_OAUTH_CLIENT_ID is not set"),
        ({"MEMORY": "4"}, "memory of a learner, for example 4G"),
        ({"CORES": "two"}, "give a number"),
        ({"IDLE": "0"}, "minutes, 1 or more"),
    ],
)
def test_a_wrong_setting_is_named_and_no_hub_starts(tmp_path, given, said):
    machine = pretend_hub_machine(tmp_path, gpus=0)
    env = {**os.environ, "ROCM_GUIDE_HUB_STATE": str(tmp_path / "state"), "ROCM_GUIDE_HUB_ROOT": str(machine.root)}
    env |= {"ROCM_GUIDE_HUB_PYTHON": sys.executable, **{f"ROCM_GUIDE_HUB_{k}": v for k, v in given.items()}}
    config = str(ROOT / "hub/jupyterhub_config.py")
    code = f"import runpy; from traitlets.config import Config; runpy.run_path({config!r}, {{'c': Config()}})"
    done = subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1], done.stderr
