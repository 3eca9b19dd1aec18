# SPDX-License-Identifier: MIT
"""An instance as a torch operator on a machine with ROCm, built by hipcc on first use. Untested on hardware.

We had no MI300X: the instance inside is the one that is compiled and executed here without ROCm; the lines around it
follow CK's examples and torch's documentation, and were not compiled, because that takes hipcc.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from rocm_guide.common.base import cache_folder, own_folder, shown, write_text
from rocm_guide.tune.ck.generate import extension_source
from rocm_guide.tune.ck.headers import installed_headers
from rocm_guide.tune.ck.instance import CkError, GemmInstance
from rocm_guide.tune.ck.rules import require

__all__ = ["build_extension"]

FLAGS = (
    "-O3",
    "-DNDEBUG",
    "-std=c++17",
    "--offload-arch=gfx942",
    "-DCK_USE_XDL",
    "-DCK_ENABLE_FP16",
    "-DCK_ENABLE_INT8",
    "-DCK_ENABLE_BF16",
    "-DCK_USE_FNUZ_FP8=1",
)


def build_extension(instance: GemmInstance, verbose: bool = False) -> Any:
    """Compile ``instance`` with hipcc, load it, and return the operator: ``op(a, b, ds, scalars) -> e``.

    Needs a ROCm build of torch, hipcc, and all of CK's headers (``/opt/rocm/include``, or ``ROCM_GUIDE_CK``): the 88
    that are shipped with this package do for compiling without a host part only.

    Raises:
        CkError: a rule is broken, torch is not built for ROCm, no headers, or hipcc refuses; the cause is chained.
    """
    import torch
    from torch.utils import cpp_extension

    require(instance)
    if not torch.version.hip:
        raise CkError(f"torch {torch.__version__} is not built for ROCm: the extension needs a ROCm build and hipcc")
    named = os.environ.get("ROCM_GUIDE_CK")
    include = [Path(named)] if named else installed_headers()
    if not include:
        raise CkError("no headers of Composable Kernel in /opt/rocm/include: install them, or set ROCM_GUIDE_CK")
    text = extension_source(instance)
    name = f"rocm_guide_ck_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    text = extension_source(instance, name)
    source = write_text(own_folder(cache_folder() / "ck" / "extensions") / f"{name}.hip", text)
    try:
        cpp_extension.load(
            name,
            [str(source)],
            extra_cuda_cflags=list(FLAGS),
            extra_include_paths=[str(include[0])],
            is_python_module=False,
            verbose=verbose,
        )
    except (OSError, RuntimeError) as e:
        raise CkError(f"hipcc: {shown(str(e).splitlines()[0])}; see build_extension(…, verbose=True)") from e
    return getattr(torch.ops.rocm_guide_ck, name)
