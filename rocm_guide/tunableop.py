# SPDX-License-Identifier: MIT
"""TunableOp, PyTorch's GEMM tuner: plan what will be tuned, tune it, read, compare and explain the results.

This module collects the public functions; each lives in a module of its own. Introduced in notebook 11_tunableop.
"""

from __future__ import annotations

from rocm_guide.tunableop_cost import call_seconds, tuning_seconds
from rocm_guide.tunableop_csv import TuningFile, parse_text, read_file, write_file
from rocm_guide.tunableop_explain import explain
from rocm_guide.tunableop_gemm import Gemm, TunableFileError, parse_gemm
from rocm_guide.tunableop_matrix import CUDA_RULES, BlasRules
from rocm_guide.tunableop_offline import tune_file
from rocm_guide.tunableop_ops import Comparison, compare, explain_validators, filter_file, merge, missing
from rocm_guide.tunableop_plan import Plan, PlannedGemm, plan, plan_model
from rocm_guide.tunableop_run import apply_mode, compare_matmul, compare_model, time_matmul, time_model
from rocm_guide.tunableop_trace import record_gemms

__all__ = [
    "CUDA_RULES",
    "BlasRules",
    "Comparison",
    "Gemm",
    "Plan",
    "PlannedGemm",
    "TunableFileError",
    "TuningFile",
    "apply_mode",
    "call_seconds",
    "compare",
    "compare_matmul",
    "compare_model",
    "explain",
    "explain_validators",
    "filter_file",
    "merge",
    "missing",
    "parse_gemm",
    "parse_text",
    "plan",
    "plan_model",
    "read_file",
    "record_gemms",
    "time_matmul",
    "time_model",
    "tune_file",
    "tuning_seconds",
    "write_file",
]
