# SPDX-License-Identifier: MIT
"""Compile a Triton kernel for an AMD GPU on a machine that has none.

Every Triton wheel contains Triton's AMD compiler, which needs no driver: the code object that an MI300X would load can
be made, and read, on a laptop.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

from cdna.arch import find_arch
from cdna.base import InputError
from cdna.compile_errors import explain_compile_error, foreign_assembly, hear_compiler
from cdna.isa.kernel import Kernel, parse_asm

__all__ = [
    "CompileError",
    "Compiled",
    "SignatureError",
    "TritonVersionError",
    "check_triton",
    "checked_with",
    "compile_kernel",
    "compiled_from_triton",
    "name_constants",
    "triton_release",
    "unwrap_kernel",
]

# Releases that pyproject.toml allows; `make worlds` runs the notebooks and tests that compile with each of them.
OLDEST_TRITON, NEWEST_TRITON = (3, 6), (3, 9)
OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "num_ctas", "enable_fp_fusion")
_VALUES = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": range(33),
    "waves_per_eu": range(11),
    "matrix_instr_nonkdim": (0, 4, 16, 32),
}
_TYPES = re.compile(
    r"(?:\*k?)?(?:i1|[iu](?:8|16|32|64)|u1|fp(?:16|32|64)|bf16|fp8e4nv|fp8e4b8|fp8e5|fp8e5b16|fp8e4b15)"
)


class TritonVersionError(InputError):
    """Triton is missing, or older than what this module compiles with."""


class SignatureError(InputError):
    """An argument type, constant or kernel that cannot be compiled as given."""


class CompileError(InputError):
    """Triton refused the kernel or its options; its own error is the ``__cause__``."""


@lru_cache(maxsize=8)  # a kernel that Triton takes from its cache on disk is a new object for each driver
def _parsed(assembly: str, name: str) -> Kernel:
    return next(k for k in parse_asm(assembly) if k.name == name)


@dataclass(frozen=True)
class Compiled:
    """One kernel, compiled for one architecture with one set of options: every stage of it, as text and bytes.

    Attributes:
        shared: LDS in bytes per workgroup. Triton's LDS is dynamic, so it is here and not in the assembly.
        ttir: Triton's first stage, without layouts; empty for a Gluon kernel, whose author writes the layouts, so that
            ``ttgir`` is its first.
        options: the options that matter for performance (warps, stages, ``waves_per_eu``, ...).
        constants: compile-time constants by parameter name, the arguments that the JIT specialised included.
        code_object: the ELF file that the GPU's driver would load.
        metadata: everything that Triton recorded.
    """

    name: str
    arch: str
    triton: str
    num_warps: int
    num_stages: int
    shared: int
    options: dict[str, Any]
    signature: dict[str, str]
    constants: dict[str, Any]
    ttir: str = field(repr=False)
    ttgir: str = field(repr=False)
    llir: str = field(repr=False)
    assembly: str = field(repr=False)
    code_object: bytes = field(repr=False)
    metadata: dict[str, Any] = field(repr=False)

    @cached_property
    def parsed(self) -> Kernel:
        """The kernel in :attr:`assembly`, parsed when it is first asked for and kept.

        Raises:
            IsaError: the compiler's output could not be read.
        """
        return _parsed(self.assembly, self.name)


def triton_release() -> tuple[int, int]:
    """Return the first two numbers of the installed Triton's version: (3, 9), also for 3.9.0+git1234 of a ROCm image.

    Raises:
        TritonVersionError: Triton is not installed.
    """
    try:
        import triton
    except ImportError as e:
        raise TritonVersionError("triton is not installed: pip install 'triton>=3.6,<3.10' (Linux)") from e
    major, minor = re.findall(r"\d+", triton.__version__)[:2]
    return int(major), int(minor)


def checked_with(release: str = "3.9") -> bool:
    """Return whether the installed Triton is the release that figures were checked with; say so in one line if not.

    Registers, steps and waits are those of one release: with another they are shown, and compared with nothing.

    >>> checked_with("3.5")  # doctest: +ELLIPSIS
    Triton 3... here: the text's figures were checked with 3.5; those printed here are this release's own
    False
    """
    import triton

    if release == ".".join(map(str, triton_release())):
        return True
    print(
        f"Triton {triton.__version__} here: the text's figures were checked with {release}; those printed here are "
        "this release's own"
    )
    return False


@cache
def _warn_of_a_newer(version: str) -> None:
    warnings.warn(
        f"triton {version} is newer than {'.'.join(map(str, NEWEST_TRITON))}, the newest that this course was checked "
        "with: it is tried, and registers, steps and times may differ from the texts",
        stacklevel=4,
    )


def check_triton() -> str:
    """Return the installed Triton's version; one newer than those that were checked gives one warning and is tried.

    Raises:
        TritonVersionError: Triton is missing, or too old.
    """
    release = triton_release()
    import triton

    version = str(triton.__version__)
    if release < OLDEST_TRITON:
        raise TritonVersionError(
            f"triton {version} is older than 3.6, the oldest whose compiler is driven as here: "
            "pip install 'triton>=3.6,<3.10'"
        )
    if release > NEWEST_TRITON:
        _warn_of_a_newer(version)
    return version


def unwrap_kernel(fn: Any) -> Any:
    """Return the ``@triton.jit`` or ``@gluon.jit`` function inside ``@triton.autotune`` and ``@triton.heuristics``.

    Raises:
        SignatureError: ``fn`` is no Triton kernel, or one decorated while ``TRITON_INTERPRET=1`` was set.
    """
    from triton.runtime.jit import JITFunction

    inner = fn
    while not isinstance(inner, JITFunction) and hasattr(inner, "fn") and not type(inner).__name__.startswith("Interp"):
        inner = inner.fn
    if isinstance(inner, JITFunction):
        return inner
    if type(inner).__name__.startswith("Interp"):
        raise SignatureError(
            "the kernel was decorated under TRITON_INTERPRET=1: unset it before the kernel is imported"
        )
    raise SignatureError(f"{fn!r:.80}: not a @triton.jit or @gluon.jit function")


def source_of(fn: Any) -> Any:
    """Return the class with which Triton compiles a kernel: of Triton's language, or of Gluon's."""
    if fn.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler import ASTSource

    return ASTSource


def _parse_type(kernel: str, name: str, text: str) -> tuple[str, Any]:
    """Parse ``*fp16:16:2g`` to Triton's (type, attributes). An attribute string is what the JIT itself would derive."""
    ty, *hints = [part.strip() for part in text.split(":")]
    if not _TYPES.fullmatch(ty):
        raise SignatureError(
            f"{kernel}: {name}={text!r} is no Triton type; write for example '*fp16:16', 'i32' or 'fp32'"
        )
    if unknown := [h for h in hints if h not in ("16", "2g", "1")]:
        raise SignatureError(f"{kernel}: {name}={text!r}: hint {unknown[0]!r} is unknown; use 16, 2g (pointers) or 1")
    if "1" in hints:
        return "constexpr", 1
    return ty, ("D" if "16" in hints else "") + ("S" if "2g" in hints and ty.startswith("*") else "")


#: numpy's types -> Triton's; those of 16 and 8 bits that numpy lacks are given as text.
_OF_NUMPY = {
    "bool": "i1",
    **{f"{kind}int{bits}": f"{kind or 'i'}{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
}


def _type_of_array(kernel: str, name: str, array: Any) -> str:
    """Return the type of a numpy array with the hints that the JIT derives from a tensor in the same place."""
    if (ty := _OF_NUMPY.get(str(array.dtype))) is None:
        raise SignatureError(f"{kernel}: {name} is an array of {array.dtype}; use {', '.join(_OF_NUMPY)}")
    return f"*{ty}{':16' if array.ctypes.data % 16 == 0 else ''}{':2g' if array.nbytes < 1 << 31 else ''}"


def _bind(
    fn: Any, backend: Any, arguments: dict[str, Any], constants: set[str], options: dict[str, Any]
) -> tuple[Any, ...]:
    """Specialise as a real launch would, then put in constants and the types that were given as text."""
    from triton.runtime.jit import create_function_from_signature

    typed = {name for name, value in arguments.items() if isinstance(value, str) and name not in constants}
    typed -= {p.name for p in fn.params if p.is_constexpr}
    binder = create_function_from_signature(fn.signature, fn.params, backend)
    # 7 stands in for an argument whose type comes as text: an int that the JIT finds nothing special about.
    values = {name: 7 if name in typed else value for name, value in arguments.items()}
    try:
        bound, special, _ = binder(**values, **options)
    except Exception as e:  # whatever the JIT's specialisation does with a value that no kernel takes
        missing = [p.name for p in fn.params if p.name not in arguments and not p.has_default]
        hint = f"no type or value for {', '.join(missing)}" if missing else str(e)
        raise SignatureError(f"{fn.__name__}: {hint}; its parameters: {', '.join(fn.arg_names)}") from e
    for i, p in enumerate(fn.params):
        if p.name in constants:
            # A constant need not be declared tl.constexpr: Triton's ahead-of-time compiler allows that too.
            special[i] = ("constexpr", bound[p.name])
        elif p.name in typed:
            special[i] = _parse_type(fn.__name__, p.name, arguments[p.name])
            if special[i][0] == "constexpr":
                bound[p.name] = special[i][1]
    return bound, special


def compile_kernel(
    fn: Any,
    signature: Mapping[str, Any] | Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    *,
    arch: str = "gfx942",
    num_warps: int = 4,
    num_stages: int = 2,
    **options: Any,
) -> Compiled:
    """Compile ``fn`` for ``arch``; no GPU is needed or touched.

    Args:
        fn: a ``@triton.jit`` or ``@gluon.jit`` function (autotune and heuristics wrappers are looked through).
        signature: what each run-time argument is, by name or in order. Either an example value, which the JIT
            specialises as in a real launch (a numpy array, a torch tensor, meta tensors included, or a number), or a
            type in Triton's spelling with hints: ``"*fp16:16:2g"`` is a pointer to fp16 that is 16-byte aligned and
            whose tensor is smaller than 2 GiB (so that buffer instructions can be used), ``"i32:16"`` a multiple of 16.
        constants: values of the ``tl.constexpr`` parameters.
        num_warps, num_stages, options: Triton's compile options, AMD's own among them (``waves_per_eu``,
            ``matrix_instr_nonkdim``, ``kpack``, ``enable_fp_fusion``, ...).

    Raises:
        TritonVersionError: see :func:`check_triton`.
        SignatureError: an argument is missing, unknown or of no known type.
        CompileError: Triton refused the kernel or an option.
        ArchError: an architecture without limits.

    >>> import numpy as np
    >>> from cdna.examples.tuning import scale_rows
    >>> x = np.empty((4096, 4096), np.float16)
    >>> k = compile_kernel(scale_rows, [x, x, 2.0, 4096], {"BLOCK": 2048})
    >>> k.name, k.arch, "buffer_load_dwordx4" in k.assembly
    ('scale_rows', 'gfx942', True)
    """
    check_triton()
    from triton.backends.compiler import GPUTarget
    from triton.compiler import compile as triton_compile
    from triton.compiler import make_backend

    row = find_arch(arch)
    fn = unwrap_kernel(fn)
    if not isinstance(signature, Mapping):
        free = [p.name for p in fn.params if not p.is_constexpr and p.name not in (constants or {})]
        if len(signature) > len(free):
            raise SignatureError(f"{fn.__name__}: {len(signature)} arguments for {len(free)} ({', '.join(free)})")
        signature = dict(zip(free, signature, strict=False))
    arguments = {
        name: _type_of_array(fn.__name__, name, value) if type(value).__name__ == "ndarray" else value
        for name, value in {**signature, **(constants or {})}.items()
    }
    if unknown := [name for name in arguments if name not in fn.arg_names]:
        raise SignatureError(f"{fn.__name__} has no parameter {unknown[0]!r}; it has {', '.join(fn.arg_names)}")
    target = GPUTarget("hip", row.name, row.wave_size)
    backend = make_backend(target)
    # Said explicitly because the default is about to change between Triton releases.
    chosen = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True, **options}
    for name, value in chosen.items():  # Triton takes any of these without a word, and compiles something else
        if name in _VALUES and (type(value) is not int or value not in _VALUES[name]):
            raise CompileError(f"{fn.__name__}: {name}={value!r}: use {', '.join(map(str, _VALUES[name]))}")
    if foreign := foreign_assembly(fn):
        raise CompileError(f"{fn.__name__} for {row.name}: {foreign}")
    bound, special = _bind(fn, backend, arguments, set(constants or {}), chosen)
    try:
        parsed, types, constexprs, attrs = fn._pack_args(backend, chosen, bound, special, {})
        source = source_of(fn)(fn, types, constexprs, attrs)
        with hear_compiler(source):
            kernel = triton_compile(source, target=target, options=parsed.__dict__)
    except Exception as e:
        raise CompileError(f"{fn.__name__} for {row.name}: {explain_compile_error(fn, e)}") from e
    if foreign := foreign_assembly(fn, kernel.asm.get("ttir") or kernel.asm.get("ttgir", "")):
        raise CompileError(f"{fn.__name__} for {row.name}: {foreign}")
    return compiled_from_triton(dict(kernel.asm), kernel.metadata._asdict(), types, name_constants(fn, constexprs))


def name_constants(fn: Any, constexprs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return constants by parameter name; Triton keys them by position, and inside tuples by a path of positions."""
    return {"".join([fn.arg_names[at[0]], *(f"[{i}]" for i in at[1:])]): v for at, v in constexprs.items()}


def compiled_from_triton(
    asm: Mapping[str, Any], metadata: Mapping[str, Any], signature: Mapping[str, Any], constants: Mapping[str, Any]
) -> Compiled:
    """Return our record of what Triton's compiler returned; :class:`CompileError` if it kept no text of a stage."""
    # Gluon begins with ttgir; a kernel of Triton's language that has this has ttir too.
    if missing := [stage for stage in ("ttgir", "llir", "amdgcn", "hsaco") if stage not in asm]:
        raise CompileError(f"{metadata.get('name')}: no {missing[0]} stage was kept; unset TRITON_STORE_BINARY_ONLY")
    return Compiled(
        name=metadata["name"],
        arch=metadata["arch"],
        triton=metadata["triton_version"],
        num_warps=metadata["num_warps"],
        num_stages=metadata["num_stages"],
        shared=metadata["shared"] or 0,
        options={k: metadata[k] for k in OPTIONS if k in metadata},
        signature={k: str(v) for k, v in signature.items()},
        constants=dict(constants),
        ttir=asm.get("ttir", ""),
        ttgir=asm["ttgir"],
        llir=asm["llir"],
        assembly=asm["amdgcn"],
        code_object=asm["hsaco"],
        metadata=dict(metadata),
    )
