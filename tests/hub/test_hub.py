# SPDX-License-Identifier: MIT
"""A hub as a class uses it: learners log in, get a GPU in turn, run cells, and lose nothing when the hub is killed.

The GPUs are pretended; JupyterHub, its proxy, the learners' servers and their kernels are real.
"""

import shutil
import time

import httpx
import pytest

from tests.hub.learner import Learner
from tests.hub.running_hub import MISSING, ROOT, Hub, hub_is_installed

pytestmark = pytest.mark.skipif(not hub_is_installed(), reason=MISSING)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("hub"), gpus=2)
    yield hub
    hub.end()
    shutil.rmtree(hub.state.parent, ignore_errors=True)


SHOW = "import os; print(os.environ['ROCR_VISIBLE_DEVICES'], os.environ['ROCM_GUIDE_HUB_DEVICE'], os.getcwd())"


def test_a_named_admin_logs_in_with_a_password_of_their_own(hub):
    teacher, ann = hub.admin(), hub.learner("ann")
    for one in (teacher, ann):
        one.log_in()
    assert teacher.user()["admin"] and not ann.user()["admin"]
    assert teacher.http.get(f"{hub.url}/hub/admin").status_code == 200
    names = [u["name"] for u in teacher.http.get(f"{hub.url}/hub/api/users", headers=teacher.headers("/hub/")).json()]
    assert {"teacher", "ann"} <= set(names)
    # Each password opens its own names alone.
    for name, password in (("teacher", hub.password), ("ann", teacher.password)):
        wrong = Learner(hub.url, name, password)
        wrong.log_in()
        assert "/hub/login" in str(wrong.http.get(f"{hub.url}/hub/home").url), name
    assert (hub.state / "admin_password").stat().st_mode & 0o777 == 0o600
    assert f"trial: teacher: the password in {hub.state / 'admin_password'}" in hub.said()
    assert "No admin users will be able to login" not in hub.said()


def test_a_class_from_the_first_login_to_a_killed_hub(hub):
    ann, bob, odd = hub.learner("ann"), hub.learner("bob"), hub.learner("..-ünal o'b")
    # Two learners, two GPUs; each has the notebooks in a home of its own.
    for one in (ann, bob):
        one.log_in()
        assert one.ask_for_server().status_code in (201, 202)
    for one in (ann, bob):
        one.wait_until_ready()
    names = [f["name"] for f in ann.api("contents/rocm-llm-guide").json()["content"]]
    assert {p.name for p in (ROOT / "notebooks").glob("*.ipynb")} <= set(names)
    seen = [one.run(SHOW)[0].split(maxsplit=2) for one in (ann, bob)]
    assert {s[0] for s in seen} == {"0", "1"} and seen[0][1] != seen[1][1]
    assert "/homes/ann/" in seen[0][2] and "/homes/bob/" in seen[1][2]

    # No one gets into another's server, not even with its address; nor does an outsider, nor into the admin's page.
    for path in (f"/user/{ann.name}/api/contents", f"/user/{ann.name}/api/kernels/{ann.kernel}", "/hub/admin"):
        assert bob.http.get(f"{hub.url}{path}", headers=bob.headers("/hub/")).status_code in (403, 404), path
    assert bob.http.get(f"{hub.url}/user/ann/lab").status_code == 403
    outsider = httpx.Client(trust_env=False)
    assert outsider.get(f"{hub.url}/user/ann/api/contents").status_code == 403
    wrong = Learner(hub.url, "eve", "not the password")
    wrong.log_in()
    assert "/hub/login" in str(wrong.http.get(f"{hub.url}/hub/home").url)

    # A third learner, whose name is odd, waits with a place in the queue and gets the first GPU that comes free.
    odd.log_in()
    odd.ask_for_server()
    assert odd.user().get("server") is None
    # The page says so while it waits, not when all is over: the proxy hands on each line as it comes.
    words = "All 2 GPU devices are in use; nobody is before you."
    assert words in odd.progress_until(words)[-1] and odd.user().get("server") is None

    # The hub is killed while cells run; the kernel goes on, and the new hub finds servers, devices and the work.
    ann.run("import threading, time; done = []; x = 41")
    ann.run("threading.Timer(1, lambda: (open('work.txt', 'w').write(str(x + 1)), done.append(1))).start()")
    before = hub.state.joinpath("devices.json").read_text()
    hub.kill()
    time.sleep(1.5)
    hub.start()
    assert (hub.state / "homes/ann/rocm-llm-guide/work.txt").read_text() == "42"
    assert ann.run("print(x, done)") == ["41 [1]"], "the kernel of before, with its variables"
    assert seen[0][1] in before and seen[0][1] in hub.state.joinpath("devices.json").read_text()

    # A stopped server gives its device back, and the one who waits gets it.
    bob.stop_server()
    odd.ask_for_server()
    assert odd.wait_until_ready() >= 0
    assert odd.run(SHOW)[0].split()[0] == seen[1][0]
