# SPDX-License-Identifier: MIT
"""Both images built for a CPU and run: notebooks in one, a class with passwords in the other. ``make images-check``.

Ten minutes and 25 GB of disk, so not part of ``make test``. The sizes are printed and written beside the benchmarks.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.timing import RESULTS
from rocm_guide.common.base import write_text
from rocm_guide.common.host import host_facts
from tests.hub.images import Builder, bytes_on_disk, why_not
from tests.hub.learner import Learner

ROOT = Path(__file__).parents[2]
MIB = 2**20
WANTED = "ROCM_GUIDE_IMAGES" in os.environ
pytestmark = [
    pytest.mark.skipif(not WANTED, reason="images take ten minutes and 25 GB of disk; make images-check builds them"),
    pytest.mark.skipif(WANTED and bool(why_not()), reason=why_not()),
]
# Bytes over the base that an image may take.
LIMITS = {"course": 4096 * MIB, "hub": 400 * MIB}


@pytest.fixture(scope="module")
def sizes():
    found = {}
    yield found
    if set(found) == {"base", *LIMITS}:
        rounded = {f"{name}_mib": round(size / MIB) for name, size in found.items()}
        print("\n" + json.dumps(rounded))
        question = "MiB on disk of the images' base (a plain Debian) and of each image over the one below it"
        data = {"question": question, "host": host_facts(), **rounded}
        write_text(RESULTS / "hub_images.json", json.dumps(data, indent=1) + "\n")


@pytest.fixture(scope="module")
def builder(tmp_path_factory, sizes):
    builder = Builder(tmp_path_factory.mktemp("images"))
    try:
        sizes["base"] = builder.base("base")
        yield builder
    finally:
        builder.end()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """What the repository holds, without what happens to lie in this clone."""
    folder = tmp_path_factory.mktemp("context")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def size_of(builder, image):
    with builder.container(image) as inside:
        print(builder.run(inside, "du", "-xm", "--max-depth=3", "--threshold=50M", "/", user="0"))
        return bytes_on_disk(builder.mounted(inside))


@pytest.fixture(scope="module")
def course(builder, context, sizes):
    torch = os.environ.get("ROCM_GUIDE_TORCH")
    arguments = {"ROCM_GUIDE_TORCH": torch} if torch else {}
    builder.build(context / "docker/course.Dockerfile", context, "course", BASE="base", **arguments)
    sizes["course"] = size_of(builder, "course") - sizes["base"]
    return "course"


@pytest.fixture(scope="module")
def hub(builder, context, course, sizes):
    builder.build(context / "docker/hub.Dockerfile", context, "hub", COURSE=course)
    sizes["hub"] = size_of(builder, "hub") - sizes["course"] - sizes["base"]
    return "hub"


def test_the_course_runs_notebooks_and_jupyterlab_for_a_user_without_rights(builder, course, tmp_path):
    assert builder.settings(course)["User"] == "1000"
    with builder.container(course) as inside:
        assert builder.run(inside, "id", "-u") == "1000"
        said = builder.run(inside, "make", "course", "VENV=.venv", "RUN_OPTIONS=00 01")
        assert "00 Start here: ok" in said and "01 LoRA from scratch: ok" in said, said
        with builder.started(inside, course, tmp_path / "log"):
            pass


def test_no_image_is_larger_than_it_may_be(course, hub, sizes):
    assert {name: size for name, size in sizes.items() if name in LIMITS and not 0 < size <= LIMITS[name]} == {}


def test_the_hub_lets_members_in_and_keeps_them_apart(builder, hub, tmp_path):
    with builder.container(hub) as inside:
        for name, groups in (("ann", "learners"), ("bob", "learners"), ("eve", "users")):
            builder.run(inside, "useradd", "-l", "--create-home", "--groups", groups, name)
        passwords = "".join(f"{name}:a-password-of-{name}\n" for name in ("ann", "bob", "eve"))
        builder.run(inside, "chpasswd", text=passwords)
        with builder.started(inside, hub, tmp_path / "log"):
            ann, bob, eve = (Learner("http://127.0.0.1:8000", n, f"a-password-of-{n}") for n in ("ann", "bob", "eve"))
            eve.log_in()
            assert "/hub/login" in str(eve.http.get(f"{eve.url}/hub/home").url), "no member of the group"
            wrong = Learner(eve.url, "ann", "another password")
            wrong.log_in()
            assert "/hub/login" in str(wrong.http.get(f"{wrong.url}/hub/home").url)
            ann.start()
            bob.start()
            who = "import getpass, os, torch, rocm_guide; print(getpass.getuser(), os.getuid() > 1000, os.getcwd())"
            assert ann.run(who) == ["ann True /home/ann/rocm-llm-guide"]
            bob.run("open('secret.txt', 'w').write('mine')")
            assert "PermissionError" in ann.run("open('/home/bob/rocm-llm-guide/secret.txt').read()")[0]
            assert "PermissionError" in ann.run("import os; os.listdir('/srv/hub')")[0]
            assert ann.http.get(f"{ann.url}/user/bob/api/contents", headers=ann.headers("/hub/")).status_code == 403
            for one in (ann, bob):
                one.stop_server()
