# SPDX-License-Identifier: MIT
# ruff: noqa: F821 - `c` is JupyterHub's
"""A JupyterHub whose servers are Slurm jobs: Slurm gives out the GPUs and holds the queue.

    .venv-hub/bin/python -m jupyterhub -f hub/slurm/jupyterhub_config.py

`make hub` once installs what that needs. The hub's machine submits jobs and is reached by the nodes; homes are on a
disk that all of them share. Settings:

ROCM_GUIDE_SLURM_PARTITION  partition (default: gpu);  ROCM_GUIDE_SLURM_GRES  what a server gets (default: gpu:1)
ROCM_GUIDE_SLURM_TIME       longest life of a server (default: 04:00:00)
ROCM_GUIDE_SLURM_COURSE     the clone of the course on the shared disk (default: this one)
"""

import contextlib
import os
import re
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CLONE), str(CLONE / "cdna")]

from hub.proxy import proxy_command  # noqa: E402
from rocm_guide.common.base import GuideError  # noqa: E402

course = Path(os.environ.get("ROCM_GUIDE_SLURM_COURSE") or CLONE)


def word(name: str, default: str) -> str:
    """Return a setting that goes into a job script: nothing in it may be read as shell."""
    value = os.environ.get(f"ROCM_GUIDE_SLURM_{name}") or default
    if not re.fullmatch(r"[\w.:,=-]+", value):
        raise ValueError(f"ROCM_GUIDE_SLURM_{name}={value!r}: letters, digits and . : , = - only")
    return value


# Whoever has a password of the cluster.
c.Authenticator.allow_all = True
with contextlib.suppress(GuideError):  # a JupyterHub of your own finds its proxy on PATH
    c.ConfigurableHTTPProxy.command = proxy_command(Path(sys.prefix))
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.cleanup_servers = False
# Kernels speak through files in a folder of the learner's own, not through ports of a node that others share.
c.Spawner.args = ["--KernelManager.transport=ipc"]
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 120
# On the node a port is chosen and told to the hub; the program behind that reads the file of the server as Python.
python = f"{course}/.venv-hub/bin/python"
c.SlurmSpawner.batchspawner_singleuser_cmd = f"{python} -P -m batchspawner.singleuser"
c.Spawner.cmd = [f"{course}/hub/singleuser/server.py"]
c.Spawner.default_url = "/lab/tree/rocm-llm-guide"
c.SlurmSpawner.req_partition = word("PARTITION", "gpu")
c.SlurmSpawner.req_gres = word("GRES", "gpu:1")
c.SlurmSpawner.req_runtime = word("TIME", "04:00:00")
c.SlurmSpawner.req_memory = "64G"
c.SlurmSpawner.req_nprocs = "8"
# Slurm sets ROCR_VISIBLE_DEVICES for its job, and ConstrainDevices=yes in cgroup.conf closes the other GPUs to it.
c.SlurmSpawner.batch_script = f"""#!/bin/bash
#SBATCH --job-name=rocm-llm-guide
#SBATCH --output={{{{homedir}}}}/.rocm-llm-guide-%j.log
#SBATCH --chdir={{{{homedir}}}}
#SBATCH --partition={{{{partition}}}}
#SBATCH --gres={{{{gres}}}}
#SBATCH --time={{{{runtime}}}}
#SBATCH --mem={{{{memory}}}}
#SBATCH --cpus-per-task={{{{nprocs}}}}
#SBATCH --export={{{{keepvars}}}}
set -eu
export OMP_NUM_THREADS={{{{nprocs}}}} PYTHONPATH={course}:{course}/cdna JUPYTER_CONFIG_PATH={course}/hub/singleuser
exec {python} -m hub.start_server --course {course}/notebooks -- {{{{cmd}}}}
"""
