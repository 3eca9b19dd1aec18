# SPDX-License-Identifier: MIT
"""The names that `rocm-guide copy` can copy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rocm_guide.cli.copying.scan import PACKAGE, scan
from rocm_guide.common.base import package_folder

__all__ = ["is_machinery", "public_helpers"]

#: What nobody lifts. The course's own machinery: its command line, the judges of its exercises, its puzzles, its checks
#: of a machine, its tables, what it keeps of a run; files ``examples.py``, which read what the notebooks read, and
#: ``api.py``, for a kernel is copied from its own file. And what stands on too much of the course to be read.
_LEFT_OUT = (
    *("cli", "exercises", "moved", "dojo", "observe.doctor", "observe.predict", "observe.system"),
    *("common.base", "common.host", "common.installation", "finetune.job", "finetune.job_check", "finetune.passport"),
    *("finetune.run_folder", "finetune.run_measurements", "finetune.run_picture", "finetune.run_stages"),
    *("kernels.cases", "kernels.resource_table", "kernels.table_measure", "models.course_data", "models.tiny"),
    *("models.config_json", "models.described", "models.quantized", "models.real", "models.weightless"),
    *("finetune.rows_check", "serve.door", "serve.gateway", "serve.sizing", "serve.served_checkpoints"),
    *("tune.tunableop.own_kernels", "tune.tunableop.recorder"),
    *("finetune.watched", "finetune.torchtune.run", "finetune.torchtune.tokenizer", "models.load", "models.step"),
    *("observe.debugging.faults.agent_log", "observe.debugging.faults.verdict", "quantize.budget", "quantize.layers"),
    *("serve.bench", "serve.generate_cost", "tune.attention.backends", "tune.attention.in_transformers", "tune.ck"),
)


def public_helpers(root: Path | None = None) -> list[str]:
    """Return every name that can be copied, written ``module.name``: the ``__all__`` of the modules that are helpers.

    An exception is not named: it comes along with what raises it.

    Args:
        root: another package folder than this one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tool.py").write_text("__all__ = ['LIMIT']\\nLIMIT = 2\\n")
    ...     public_helpers(Path(folder))
    ['tool.LIMIT']
    """
    root = root or package_folder()
    found = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        if is_machinery(module) or path.name.startswith("__"):
            continue
        found += [f"{module}.{name}" for name in _defined_here(path, module, root) if not name.endswith("Error")]
    return found


def is_machinery(module: str) -> bool:
    """Return whether nothing of a module (``"cli.main"``) is offered as a helper."""
    return f"{module}.".startswith(tuple(f"{m}." for m in _LEFT_OUT)) or module.split(".")[-1] in ("examples", "api")


def _defined_here(path: Path, module_name: str, root: Path) -> list[str]:
    """Return the names of a module's ``__all__`` that it defines;
    a name that is re-exported is copied from where it is.

    Most modules define each of them by a ``def``, ``class`` or ``NAME = `` at the margin, which a look at the text
    shows; only the others are parsed, which takes a hundred times as long.
    """
    text = path.read_text(encoding="utf-8")
    listed = re.search(r"^__all__ = (\[[^\]]*\])", text, re.M)
    plain = set(re.findall(r"^(?:(?:async )?def|class) (\w+)", text, re.M)) | set(
        re.findall(r"^(\w+)\b.*?=", text, re.M)
    )
    try:
        names = ast.literal_eval(listed[1]) if listed else []
    except (ValueError, SyntaxError):
        names = [""]
    if listed and plain.issuperset(names):
        return list(names)
    module = scan(f"{PACKAGE}.{module_name}", root) if "__all__" in text else None
    return [name for name in module.public if name in module.defined] if module else []
