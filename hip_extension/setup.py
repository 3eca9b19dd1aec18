# SPDX-License-Identifier: MIT
"""Build the course's HIP kernels as a torch extension, on a machine with ROCm and a ROCm build of torch:

    cd hip_extension && python setup.py bdist_wheel      (or: pip install --no-build-isolation .)

Importing ``rocm_guide_hip`` then registers ``torch.ops.rocm_guide.rmsnorm_fp8``, ``swiglu_fp8`` and ``skinny_gemm``.
"""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

from rocm_guide.hip.extension import HIPCC_FLAGS, extension_sources

setup(
    name="rocm-guide-hip",
    version="0.1.0",
    py_modules=["rocm_guide_hip"],
    ext_modules=[
        CUDAExtension(
            "rocm_guide_hip_kernels",
            [str(p) for p in extension_sources("build/sources")],
            extra_compile_args={"cxx": ["-O3"], "nvcc": HIPCC_FLAGS},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
