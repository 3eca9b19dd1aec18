# SPDX-License-Identifier: MIT
"""A class of real users of the machine, with passwords of their own: nobody reads what is another's.

The users are made where nobody else sees them: /etc and /home are copies in a mount namespace of the hub's own. It
takes root; ROCM_GUIDE_CLASS=20 makes a class of twenty.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.learner import Learner
from tests.hub.running_hub import MISSING, ROOT, Hub, hub_is_installed


def why_not():
    if not hub_is_installed():
        return MISSING
    if os.geteuid():
        return "a hub whose servers run as other users is started by root"
    if missing := [p for p in ("unshare", "useradd", "chpasswd") if shutil.which(p) is None]:
        return f"users are made with {missing[0]}, which is not here"
    said = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return said.stderr.strip() and f"no mount namespace can be made here: {said.stderr.strip()}"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "all is here")
CLASS = [f"learner{n:02d}" for n in range(1, 1 + int(os.environ.get("ROCM_GUIDE_CLASS", "2")))]
TEACHER, STRANGER = "teacher", "stranger"
# Copies are bound, users made, then the rest of the words is run. A Python below a folder that only root may enter is
# shown to all in there, alone.
WITH_USERS = """set -e
cp -a /etc "$COPY" && mount --bind "$COPY" /etc
mount -t tmpfs -o mode=755 homes /home
if [ -n "$CLOSED" ]; then
    n=0; for part in $SHOWN; do n=$((n + 1)); mkdir "$COPY.$n"; mount --bind "$part" "$COPY.$n"; done
    mount -t tmpfs -o mode=755 shown "$CLOSED"
    n=0; for part in $SHOWN; do n=$((n + 1)); mkdir -p "$part"; mount --bind "$COPY.$n" "$part"; done
fi
groupadd learners
for name in $MEMBERS; do useradd -l --create-home --groups learners "$name"; done
useradd -l --create-home "$STRANGER"
for name in $MEMBERS $STRANGER; do echo "$name:a-password-of-$name"; done | chpasswd
exec "$@"
"""


def closed_to_others():
    """The folder above Python, its environment or the clone that others may not enter, and which of these lie below."""
    parts = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT)}
    closed = [f for part in parts for f in part.parents if not f.stat().st_mode & stat.S_IXOTH]
    highest = min(closed, key=lambda f: len(f.parts), default=None)
    return highest or "", [str(p) for p in sorted(parts) if highest in p.parents]


class HubOfTheMachine(Hub):
    """A hub for the users of the machine, in a mount namespace with users of its own."""

    inside = ("unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_USERS, "hub")

    def start(self):
        given = {"USERS": "system", "GROUP": "learners", "ADMINS": TEACHER}
        self.env |= {f"ROCM_GUIDE_HUB_{k}": v for k, v in given.items()}
        copy = self.state.parent / "etc"
        self.env |= {"COPY": str(copy), "MEMBERS": " ".join([*CLASS, TEACHER]), "STRANGER": STRANGER}
        closed, shown = closed_to_others()
        self.env |= {"CLOSED": str(closed), "SHOWN": " ".join(shown)}
        super().start()

    def member(self, name):
        return Learner(self.url, name, f"a-password-of-{name}")

    def end(self):
        """End all that runs in the namespace, learners' servers included; its mounts go with the last."""

        def namespace(process):
            with contextlib.suppress(OSError):
                return (process / "ns/mnt").readlink()

        mine = namespace(Path(f"/proc/{self.process.pid}"))
        assert mine != namespace(Path("/proc/self"))
        for entry in Path("/proc").glob("[0-9]*"):
            if mine and namespace(entry) == mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    hub = HubOfTheMachine(tmp_path_factory.mktemp("hub"), gpus=4, compute="CPX")
    yield hub
    hub.end()
    shutil.rmtree(hub.state.parent, ignore_errors=True)


def test_only_members_of_the_group_get_in_each_with_their_own_password(hub):
    for name, password in (
        (STRANGER, f"a-password-of-{STRANGER}"),
        (CLASS[0], f"a-password-of-{CLASS[1]}"),
        (TEACHER, ""),
    ):
        one = Learner(hub.url, name, password)
        one.log_in()
        assert "/hub/login" in str(one.http.get(f"{hub.url}/hub/home").url), name
    assert STRANGER not in Path("/etc/passwd").read_text(), "the machine itself has no new user"


WHO = "import getpass, os; print(getpass.getuser(), os.getuid() > 999, os.getcwd())"
SECRET = """import os
with open("secret.txt", "w") as f:
    f.write("mine")
os.environ["TOKEN"] = "mine"
print(os.getpid(), os.path.abspath("secret.txt"))"""
SPY = """import os, signal
def tried(what, *given):
    try:
        return f"{what.__name__} gave {what(*given)!r}"
    except OSError as e:
        return type(e).__name__
print(*{tried(*t) for t in (
    (open, PLACE), (os.listdir, os.path.dirname(PLACE)), (open, PLACE, "w"), (os.remove, PLACE),
    (open, f"/proc/{PID}/environ"), (open, f"/proc/{PID}/mem"), (os.listdir, f"/proc/{PID}/fd"),
    (os.kill, PID, signal.SIGTERM), (os.listdir, STATE), (open, STATE + "/jupyterhub.sqlite"),
)})"""


def test_a_class_opens_a_notebook_runs_a_cell_and_reads_nothing_of_others(hub):
    learners = [hub.member(name) for name in CLASS]
    for one in learners:
        one.log_in()
        assert one.ask_for_server().status_code in (201, 202), hub.said()[-3000:]
    for one in learners:
        one.wait_until_ready(600)
    teacher = hub.member(TEACHER)
    teacher.log_in()
    known = teacher.http.get(f"{hub.url}/hub/api/users", headers=teacher.headers("/hub/")).json()
    assert {u["name"] for u in known if u["admin"]} == {TEACHER}
    assert {u["name"] for u in known if u.get("server")} == set(CLASS)

    secrets = {}
    for one in learners:
        page = one.api("contents/rocm-llm-guide/00_start_here.ipynb")
        assert page.status_code == 200 and page.json()["content"]["cells"], one.name
        assert one.run(WHO, seconds=600) == [f"{one.name} True /home/{one.name}/rocm-llm-guide"]
        pid, place = one.run(SECRET)[0].split(maxsplit=1)
        secrets[one.name] = int(pid), place

    for one, other in zip(learners, [*learners[1:], learners[0]], strict=True):
        pid, place = secrets[other.name]
        values = f"PID, PLACE, STATE = {pid}, {place!r}, {str(hub.state)!r}"
        assert one.run(values, SPY)[1] == "PermissionError", (one.name, other.name)
        for path in (
            f"/user/{other.name}/api/contents",
            f"/user/{other.name}/api/kernels",
            f"/user/{other.name}/lab",
            "/hub/admin",
        ):
            assert one.http.get(f"{hub.url}{path}", headers=one.headers("/hub/")).status_code in (403, 404), path
        assert one.http.get(f"{hub.url}/hub/api/users", headers=one.headers("/hub/")).status_code == 403
        assert other.run("print(open('secret.txt').read(), os.environ['TOKEN'])") == ["mine mine"], "all is there"
    for one in learners:
        one.stop_server()
