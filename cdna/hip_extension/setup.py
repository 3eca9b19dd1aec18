# SPDX-License-Identifier: MIT
"""Build the course's HIP kernels as a torch extension, on a machine with ROCm and a ROCm build of torch:

    cd cdna/hip_extension && python setup.py bdist_wheel      (or: pip install --no-build-isolation .)

Importing ``cdna_hip`` then registers ``torch.ops.cdna_hip.rmsnorm_fp8``, ``swiglu_fp8`` and ``skinny_gemm``.
"""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

from cdna.hip.extension import HIPCC_FLAGS, extension_sources

setup(
    name="cdna-hip",
    version="0.1.0",
    py_modules=["cdna_hip"],
    ext_modules=[
        CUDAExtension(
            "cdna_hip_kernels",
            [str(p) for p in extension_sources("build/sources")],
            extra_compile_args={"cxx": ["-O3"], "nvcc": HIPCC_FLAGS},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
