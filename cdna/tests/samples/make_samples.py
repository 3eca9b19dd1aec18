# SPDX-License-Identifier: MIT
"""Makes the Triton samples of this folder again: ``python make_samples.py`` under triton 3.9, 3.6 or 3.1, on a CPU.

The HIP samples come from sample_kernels.hip through clang 22 (the ``ziglang`` wheel):
``clang -x hip --cuda-device-only --offload-arch=gfx942 -nogpulib -nogpuinc -O3 -S sample_kernels.hip``; the code
object is that assembly through ``clang -target amdgcn-amd-amdhsa -mcpu=gfx942 -c`` and ``ld.lld -shared``. The
``.objdump`` files are ``llvm-objdump -d`` (LLVM 19) of the code object of the same name. Paths of the machine are
taken out of the text.
"""

import pathlib
import re
import sys

import sample_kernels as k
import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = pathlib.Path(__file__).parent
TAG = "t" + "".join(triton.__version__.split(".")[:2])
OLD = TAG == "t31"
TARGET = GPUTarget("hip", "gfx942", 64)
GEMM = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32")}
INT4 = {"q_ptr": "*fp16", "k_ptr": "*i32", "pair_ptr": "*i32", "out_ptr": "*fp32", "n_tokens": "i32"}
ROWS = {"x_ptr": "*bf16", "y_ptr": "*bf16", "stride": "i32", "n": "i32"}
SAMPLES = {
    "softmax": (k.softmax_rows, ROWS, {"BLOCK": 4096}, {}, True),
    "gemm": (k.gemm, GEMM, {"BM": 128, "BN": 128, "BK": 32}, {}, True),
    "gemm_unaligned": (k.gemm, GEMM, {"BM": 64, "BN": 64, "BK": 32}, {}, False),
    "gemm_spill": (k.gemm, GEMM, {"BM": 128, "BN": 128, "BK": 32}, {"waves_per_eu": 6}, True),
    "gemm_padded": (k.gemm, GEMM, {"BM": 64, "BN": 64, "BK": 32}, {"waves_per_eu": 2}, True),
    "nested": (k.nested, {"x": "*fp32", "y": "*fp32", "n": "i32", "m": "i32"}, {"BLOCK": 1024}, {}, True),
    "int4kv": (k.int4_kv_scores, INT4, {"BLOCK_M": 16, "BLOCK_N": 64, "D": 64}, {}, True),
}


def compile_sample(fn, signature, constants, options, aligned):
    names = fn.arg_names
    free = [i for i, n in enumerate(names) if n in signature]
    if OLD:
        from triton.compiler import AttrsDescriptor

        attrs = AttrsDescriptor(tuple(free) if aligned else (), ())
        source = ASTSource(
            fn, {i: signature[names[i]] for i in free}, {names.index(n): v for n, v in constants.items()}, attrs
        )
    else:
        types = {n: signature.get(n, "constexpr") for n in names}
        source = ASTSource(fn, types, constants, {(i,): [["tt.divisibility", 16]] for i in free} if aligned else {})
    return triton.compile(source, target=TARGET, options={"num_warps": 4, "num_stages": 0 if OLD else 2, **options})


def clean(text):
    return re.sub(r'(["\s])/(?:[\w.\-]+/)+', r"\1", text)


def main():
    if OLD:  # its linker is not in the wheel: keep the text stages
        backend = backends["amd"].compiler

        def stages(self, found, options):
            found["ttir"] = lambda s, m: self.make_ttir(s, m, options)
            found["ttgir"] = lambda s, m: self.make_ttgir(s, m, options)
            found["llir"] = lambda s, m: self.make_llir(s, m, options)
            found["amdgcn"] = lambda s, m: self.make_amdgcn(s, m, options)
            found["hsaco"] = lambda s, m: b""

        backend.add_stages = stages
        backend.path_to_rocm_lld = staticmethod(lambda: "/bin/true")
    wanted = {"t31": ["int4kv", "gemm"], "t36": ["gemm", "int4kv", "gemm_spill"]}.get(TAG, list(SAMPLES))
    for name in wanted:
        kernel = compile_sample(*SAMPLES[name])
        stem = HERE / f"{name}_{TAG}"
        stages = ["ttgir"] * (name in ("int4kv", "gemm", "softmax")) + ["amdgcn"] * (not OLD)
        for stage in stages + ["ttir"] * (name == "nested"):
            pathlib.Path(f"{stem}.{stage}").write_text(clean(kernel.asm[stage]))
        if "--code" in sys.argv and name in ("gemm", "gemm_spill", "gemm_padded"):
            # With TRITON_DISABLE_LINE_INFO=1, so that no path is inside.
            pathlib.Path(f"{stem}.hsaco").write_bytes(kernel.asm["hsaco"])
        print(stem.name, kernel.metadata.shared)


if __name__ == "__main__":
    main()
