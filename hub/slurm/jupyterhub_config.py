# SPDX-License-Identifier: MIT
# ruff: noqa: F821 - `c` is JupyterHub's
"""A JupyterHub whose servers are Slurm jobs: Slurm gives out the GPUs and holds the queue.

The hub's machine submits jobs and is reached by the nodes; homes are on a disk that all of them share. Settings:

ROCM_GUIDE_SLURM_PARTITION  partition (default: gpu);  ROCM_GUIDE_SLURM_GRES  what a server gets (default: gpu:1)
ROCM_GUIDE_SLURM_TIME       longest life of a server (default: 04:00:00)
ROCM_GUIDE_SLURM_COURSE     the clone of the course on the shared disk (default: this one)
"""

import os
import re
from pathlib import Path

course = Path(os.environ.get("ROCM_GUIDE_SLURM_COURSE") or Path(__file__).resolve().parents[2])


def word(name: str, default: str) -> str:
    """A setting that goes into a job script: nothing in it may be read as shell."""
    value = os.environ.get(f"ROCM_GUIDE_SLURM_{name}") or default
    if not re.fullmatch(r"[\w.:,=-]+", value):
        raise ValueError(f"ROCM_GUIDE_SLURM_{name}={value!r}: letters, digits and . : , = - only")
    return value


c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.cleanup_servers = False
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 120
c.Spawner.cmd = [f"{course}/.venv-hub/bin/python", "-P", f"{course}/hub/singleuser/server.py"]
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
export OMP_NUM_THREADS={{{{nprocs}}}} PYTHONPATH={course} JUPYTER_CONFIG_PATH={course}/hub/singleuser
exec {course}/.venv-hub/bin/python -m rocm_guide.hub.start_server --course {course}/notebooks -- {{{{cmd}}}}
"""
