# SPDX-License-Identifier: MIT
"""Slurm's spawner with a cluster of one node that is pretended: the hub, its jobs' script and the server are real."""

import getpass
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from hub.kernel import write_kernel
from tests.hub.running_hub import MISSING, ROOT, Hub, free_ports, hub_is_installed

# sbatch, squeue and scancel as the spawner calls them. A job gets only the variables that --export names, as in Slurm.
CLUSTER = f"""#!{sys.executable}
import os, pathlib, re, signal, subprocess, sys
folder, command = pathlib.Path(__file__).resolve().parent, pathlib.Path(sys.argv[0]).name
job = folder / "job"
with (folder / "called").open("a") as called:
    print(command, *sys.argv[1:], file=called)
if command == "sbatch":
    script = sys.stdin.read()
    option = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.M))
    # The learner's home is a folder of the test.
    home = (folder / "home").read_text()
    (folder / "script").write_text(script.replace(option["chdir"], home))
    names = option["export"].split(",")
    env = {{k: v for k, v in os.environ.items() if k in names}} | {{"HOME": home, "ROCR_VISIBLE_DEVICES": "5"}}
    with (folder / "job.log").open("w") as log:
        started = subprocess.Popen(["bash", folder / "script"], env=env, cwd=home, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    job.write_text(str(started.pid))
    print("209;cluster")
elif command == "squeue" and job.exists():
    state = pathlib.Path(f"/proc/{{job.read_text()}}/stat")
    if state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        print("RUNNING localhost")
elif command == "scancel" and job.exists():
    os.killpg(int(job.read_text()), signal.SIGTERM)
"""


class SlurmHub(Hub):
    """A hub of hub/slurm/jupyterhub_config.py, with one password and a home in a folder of the test."""

    def __init__(self, folder):
        # A home with a path as long as clusters have: a Unix socket's may not have 108 bytes.
        self.state, self.port = folder / "the-disk-that-all-nodes-share", free_ports()
        self.url, self.log = f"http://127.0.0.1:{self.port}", folder / "hub.log"
        home, cluster = self.home(getpass.getuser()), folder / "cluster"
        for new in (home, cluster):
            new.mkdir(parents=True)
        (cluster / "home").write_text(str(home))
        (cluster / "sbatch").write_text(CLUSTER)
        (cluster / "sbatch").chmod(0o755)
        for name in ("squeue", "scancel"):
            os.link(cluster / "sbatch", cluster / name)
        (self.state / "password").write_text("for this test")
        self.config = folder / "config.py"
        self.config.write_text(
            f"load_subconfig({str(ROOT / 'hub/slurm/jupyterhub_config.py')!r})\n"
            "c.JupyterHub.authenticator_class = 'shared-password'\n"
            "c.SharedPasswordAuthenticator.user_password = 'for this test'\n"
            f"c.JupyterHub.bind_url = {self.url!r}\n"
            f"c.JupyterHub.hub_bind_url = 'http://127.0.0.1:{self.port + 81}'\n"
            f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{self.port + 1}'\n"
            f"c.JupyterHub.db_url = 'sqlite:///{self.state}/hub.sqlite'\n"
            f"c.JupyterHub.cookie_secret_file = '{self.state}/cookie'\n"
            f"c.ConfigurableHTTPProxy.pid_file = '{self.state}/proxy.pid'\n"
            f"c.SlurmSpawner.exec_prefix = 'env PATH={cluster}:/usr/bin:/bin'\n"
            f"c.Spawner.args += {['--allow-root'] if os.geteuid() == 0 else []!r}\n"
        )
        self.env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        self.env |= {"ROCM_GUIDE_HUB_STATE": str(self.state), "ROCM_GUIDE_SLURM_GRES": "gpu:mi300x:1"}
        write_kernel(ROOT / ".venv-hub", Path(sys.executable))
        self.start()


@pytest.fixture
def hub(tmp_path):
    hub = SlurmHub(tmp_path)
    yield hub
    hub.end()
    shutil.rmtree(hub.state, ignore_errors=True)


@pytest.mark.skipif(not hub_is_installed(), reason=MISSING)
def test_a_job_becomes_a_server_and_ends_with_it(hub, tmp_path):
    ann = hub.learner(getpass.getuser())
    ann.log_in()
    assert ann.ask_for_server().status_code in (201, 202), hub.said()[-3000:]
    ann.wait_until_ready()
    script = (tmp_path / "cluster/script").read_text()
    assert "#SBATCH --gres=gpu:mi300x:1\n" in script and "{" not in script
    said = ann.run("import os, torch; print(os.environ['ROCR_VISIBLE_DEVICES'], os.getcwd())")
    assert said == [f"5 {hub.home(ann.name)}/rocm-llm-guide"], "what Slurm gave is what the kernel sees"
    names = {f["name"] for f in ann.api("contents/rocm-llm-guide").json()["content"]}
    assert {p.name for p in (ROOT / "notebooks").glob("*.ipynb")} <= names
    ann.stop_server()
    called = (tmp_path / "cluster/called").read_text()
    assert (
        "scancel 209" in called and "squeue -h -j 209 -o %T %B" in called and json.dumps(ann.user()["server"]) == "null"
    )
