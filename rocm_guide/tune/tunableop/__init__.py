# SPDX-License-Identifier: MIT
"""TunableOp, PyTorch's tuner of GEMMs: plan, tune, read and merge its files.

In reading order: ``gemm`` (one line of a file), ``blas_calls`` (what PyTorch asks BLAS for), ``recorder`` (which
products a model without weights asks for), ``generation`` and ``planner`` (which ones generation does), ``own_kernels``
(those of quantised layers), ``files``, ``tuning``, ``tuned_elsewhere`` (files of other tuners), ``coverage`` (which
products of a model they cover).
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES, BlasRules
    from rocm_guide.tune.tunableop.coverage import Coverage, covers
    from rocm_guide.tune.tunableop.files import (
        TuningFile,
        explain_validators,
        merge,
        missing,
        parse_text,
        read_file,
        write_file,
    )
    from rocm_guide.tune.tunableop.gemm import Gemm, TunableFileError, describe_gemm, parse_gemm
    from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt
    from rocm_guide.tune.tunableop.planner import Plan, plan, plan_model
    from rocm_guide.tune.tunableop.recorder import record_gemms
    from rocm_guide.tune.tunableop.tuned_elsewhere import TunedElsewhere, read_tuned
    from rocm_guide.tune.tunableop.tuning import call_seconds, share_out, tune_file, tuning_seconds

__all__, __getattr__, __dir__ = lazy_names(__name__)
