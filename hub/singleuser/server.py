#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A learner's server: jupyterhub-singleuser with half the CPU time until it answers.

jsonschema, which checks Jupyter's events, imports rfc3987_syntax if it is installed, and that builds a grammar each
time: 1.3 of the 2.6 s of CPU time that all imports take (2 cores, November 2026). It serves the format "iri", which no
schema of Jupyter names; jsonschema does without.
"""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # an import of it now raises ImportError

# What a server imports later anyway: where this file is run once by the owner of the environment with --version, the
# compiled modules are stored, and no learner has to compile what they may not write.
import jupyter_resource_usage  # noqa: E402, F401
import jupyter_server_terminals  # noqa: E402, F401
import jupyterlab.labapp  # noqa: E402, F401
from jupyterhub.singleuser import main  # noqa: E402

if __name__ == "__main__":
    main()
