# SPDX-License-Identifier: MIT
"""The maintained libraries, ready to use: GPTQModel (GPTQ and AWQ) and bitsandbytes.

`make course` installs them into a folder of their own (`rocm_guide.observe.doctor.own_folders` says why);
:func:`add_libraries` makes them importable when they are wanted.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from cdna.children import call_in_child
from rocm_guide.models.hub import refuse_remote_code
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS, QUANTISED_READERS
from rocm_guide.quantize.calibration import calibration_samples, linear_layers
from rocm_guide.quantize.grid import QuantizationError, check_grid

__all__ = ["add_libraries", "add_reader", "gptqmodel_load", "gptqmodel_quantize", "kernels", "quiet", "small_rows"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back banners, progress lines and warnings of a library; exceptions pass.

    >>> with quiet():
    ...     print("banner")
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    sink = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def add_libraries(*names: str) -> dict[str, str]:
    """Make what ``make course`` put into that folder importable, import ``names`` of them, and give their versions.

    Call it before transformers or PEFT are first asked to quantise: they remember what they did not find. What stays
    changed: the folder is last on ``sys.path``, both look again, GPTQModel logs errors alone, and two of its variables
    have a value: it packs without its C++ helper, and has at least two workers.

    Raises:
        QuantizationError: a library is not installed.

    >>> add_libraries("bitsandbytes")["bitsandbytes"] >= "0.50"
    True
    """
    names = names or ("gptqmodel", "bitsandbytes")
    # GPTQModel reads this whenever it packs, in your own calls too. It would compile a C++ helper for half a minute,
    # which pays from a billion weights on.
    os.environ.setdefault("GPTQMODEL_DISABLE_PACK_EXT", "1")
    # And this when it first quantises: left alone, it plans with too few workers on two cores, and refuses.
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(max(2, min(8, os.cpu_count() or 2))))
    if any(find_spec(name) is None for name in names):
        OWN_FOLDERS["quantization"].add_to_path()
        importlib.invalidate_caches()
        # What was looked for in vain before is looked for again.
        for module in ("transformers.utils.import_utils", "peft.import_utils"):
            for value in list(vars(sys.modules.get(module, logging)).values()):
                if module in sys.modules and hasattr(value, "cache_clear"):
                    value.cache_clear()
        if find_spec("torchao") is not None:
            # PEFT imports it when it finds it, and it reports all that does not fit this machine; some of it only when
            # a part of it is first used, so this one logger stays quiet.
            logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
            with quiet():
                importlib.import_module("torchao")
    versions = {}
    for name in names:
        if find_spec(name) is None:
            raise QuantizationError(f"{name} is not installed; {OWN_FOLDERS['quantization'].fix}")
        with quiet():
            versions[name] = importlib.import_module(name).__version__
    if "gptqmodel" in versions:
        # Which kernel it has chosen, and that transformers takes the rest of a checkpoint's settings from its file.
        importlib.import_module("logbar").LogBar.shared().setLevel("ERROR")
        warnings.filterwarnings("ignore", message="You passed `quantization_config`")
    return versions


def add_reader(method: str) -> None:
    """Make importable what transformers reads a quantised checkpoint with, before it is loaded.

    Args:
        method: the ``quant_method`` of its config.json (gptq, awq, bitsandbytes, compressed-tensors). Others, and "",
            need nothing of what the course installs.

    Raises:
        QuantizationError: it is not installed.

    >>> add_reader("bitsandbytes")
    """
    if library := QUANTISED_READERS.get(method):
        add_libraries(library)


def _backend(name: str) -> Any:
    from gptqmodel import BACKEND

    found = getattr(BACKEND, name.upper(), None)
    if found is None:
        usual = "auto, gptq_torch, gptq_triton, gptq_marlin, awq_torch, awq_gemm, awq_gemm_triton"
        raise QuantizationError(f"backend={name!r}: GPTQModel has none of this name; for example {usual}")
    return found


@contextlib.contextmanager
def small_rows() -> Iterator[None]:
    """Let GPTQModel's AWQ clip layers whose rows are not a multiple of 64.

    Its search goes through the rows 64 at a time and asserts that they come out even, which any large model does and
    the tiny one's v_proj (96 rows) does not. Rows are independent: filling up with copies changes nothing for the rest.
    """
    from gptqmodel.looper.awq_processor import AWQProcessor

    original = AWQProcessor._compute_best_clip

    def padded(self: Any, w: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        missing = -len(w) % 64
        return original(self, torch.cat([w, w[:missing]]), *args, **kwargs)[: len(w)]

    AWQProcessor._compute_best_clip = padded
    try:
        yield
    finally:
        AWQProcessor._compute_best_clip = original


def gptqmodel_quantize(
    source: str | Path,
    target: str | Path,
    samples: Sequence[Mapping[str, Any]],
    method: str = "gptq",
    *,
    bits: int = 4,
    group: int = 128,
    dtype: Any = None,
    backend: str = "auto",
    **settings: Any,
) -> float:
    """Quantise a saved model with GPTQModel's own class, save the result, and give the seconds of quantising.

    In a process of its own: after an error in one of its threads the library ends the process that it runs in.

    Args:
        source: folder (or hub id) of the unquantised model.
        bits, group: AWQ's packed format holds 4 bits only.
        dtype: arithmetic of the calibration; float16 when None. AWQ's kernels take float16 and bfloat16.
        backend: kernel of the layers that are packed, as "auto" or "awq_torch".
        settings: further fields of ``QuantizeConfig``, as desc_act, sym, damp_percent.

    Raises:
        QuantizationError: settings or samples that do not fit, checked before anything is loaded.
        ChildError: what the library could not do, in its own words.
    """
    add_libraries("gptqmodel")
    from transformers import AutoConfig, AutoModelForCausalLM

    checked = [{k: v[0].tolist() for k, v in s.items()} for s in calibration_samples(samples)]
    if method not in ("gptq", "awq") or (method == "awq" and bits != 4) or bits not in (2, 3, 4, 5, 6, 7, 8):
        raise QuantizationError(f"method={method!r}, bits={bits!r}: choose 'gptq' with 2 to 8 bits, or 'awq' with 4")
    shape = AutoConfig.from_pretrained(refuse_remote_code(source), trust_remote_code=False)
    with torch.device("meta"):
        linears = linear_layers(AutoModelForCausalLM.from_config(shape, trust_remote_code=False))
    for columns in {m.in_features for m in linears.values()}:
        check_grid(columns, bits, group)
    _backend(backend)
    fields: dict[str, Any] = {"bits": bits, "group_size": group, "quant_method": method, "sym": False}
    fields |= {"format": "gemm"} if method == "awq" else {"act_group_aware": False}
    source, target = (str(Path(p).resolve()) if Path(p).exists() or p is target else str(p) for p in (source, target))
    options = {"fields": fields | settings, "dtype": dtype or torch.float16, "backend": backend}
    # In a folder of its own: GPTQModel writes logs/ wherever the process stands.
    with tempfile.TemporaryDirectory() as there, contextlib.chdir(there):
        return float(call_in_child(quantize_and_save, source=source, target=target, samples=checked, **options))


def quantize_and_save(
    source: str, target: str, samples: list[dict[str, list[int]]], fields: dict[str, Any], dtype: Any, backend: str
) -> float:
    """Do the work of :func:`gptqmodel_quantize` in this process: load, quantise, save; gives the seconds of quantising.

    An error in one of the library's threads is printed and ends the process.
    """
    add_libraries("gptqmodel")
    from gptqmodel import GPTQModel, QuantizeConfig

    with small_rows():
        model = GPTQModel.load(source, QuantizeConfig(**fields), dtype=dtype, trust_remote_code=False)
        began = time.perf_counter()
        model.quantize(samples, batch_size=1, backend=_backend(backend))
        seconds = time.perf_counter() - began
        model.save(target)
    return seconds


def gptqmodel_load(folder: str | Path, *, device: str, dtype: Any = None, backend: str = "auto") -> Any:
    """Load what :func:`gptqmodel_quantize` saved; the transformers model, ready to generate.

    Raises:
        QuantizationError: the folder holds no quantised model, or ``backend`` has no kernel for ``device``.
    """
    add_libraries("gptqmodel")
    from gptqmodel import GPTQModel

    if not (Path(folder) / "quantize_config.json").is_file():
        raise QuantizationError(f"{folder}: no quantize_config.json; name the folder that GPTQModel saved to")
    refuse_remote_code(folder)
    options = {"device": device, "dtype": dtype or torch.float16, "backend": _backend(backend)}
    with quiet():
        try:
            loaded = GPTQModel.load(str(folder), trust_remote_code=False, **options)
        except (ValueError, NotImplementedError, AssertionError) as error:
            fix = "; backend='auto' takes a kernel that runs there" if backend != "auto" else ""
            raise QuantizationError(f"{backend} on {device} failed: {_first_line(error)}{fix}") from error
    return loaded.model.eval()


def _first_line(error: Exception) -> str:
    """Return the first line of a message, with classes by their bare names and without a full stop."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", line).rstrip(".")


def kernels(method: str, device: str) -> dict[str, list[int]]:
    """Return GPTQModel's kernels for ``method`` that declare to run on ``device``: name -> bits they take.

    Read from the installed package, so that nobody has to believe a table.

    Args:
        method: "gptq" or "awq".
        device: "cpu", "cuda" or "rocm".

    Raises:
        QuantizationError: the library is not installed.

    >>> "TorchLinear" in kernels("gptq", "rocm")
    True
    """
    add_libraries("gptqmodel")
    with quiet():
        from gptqmodel.utils.importer import iter_quant_linear_kernels
    found: dict[str, list[int]] = {}
    for kernel in iter_quant_linear_kernels():
        methods = {str(m.value) for m in kernel.SUPPORTS_METHODS or ()}
        devices = {str(d.value) for d in kernel.SUPPORTS_DEVICES or ()}
        if method in methods and devices & {"all", device}:
            found[kernel.__name__] = sorted(int(b) for b in kernel.SUPPORTS_BITS if str(b).isdigit())
    return dict(sorted(found.items()))
