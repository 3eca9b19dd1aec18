# SPDX-License-Identifier: MIT
"""Hardware and versions of a measurement with a hub: of the hub's own environment and of the learners' kernels."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from hub.proxy import proxy_version
from rocm_guide.common.host import describe_cpu, host_facts, memory_available
from tests.hub.running_hub import ROOT

MIB = 2**20
_HUB = ("jupyterhub", "jupyterlab", "jupyter-server", "jupyter-resource-usage")


def stamp() -> dict[str, Any]:
    """Return the hardware, its load before the measurement began, and versions."""
    libraries = next((ROOT / ".venv-hub/lib").glob("python3*/site-packages"))
    have = {
        d.metadata["Name"].lower().replace("_", "-"): d.version
        for d in importlib.metadata.distributions(path=[str(libraries)])
    }
    versions = {name: have[name] for name in _HUB}
    versions["configurable-http-proxy"] = str(proxy_version(ROOT / ".venv-hub"))
    versions |= {name: importlib.metadata.version(name) for name in ("torch", "transformers", "ipykernel")}
    available, total = memory_available()
    return {
        "hardware": describe_cpu(),
        "host": host_facts(),
        "memory_gib": round(total / 2**30, 1),
        "available_gib": round(available / 2**30, 1),
        "load": [round(x, 1) for x in os.getloadavg()],
        "versions": versions,
    }
