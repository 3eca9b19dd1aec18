# SPDX-License-Identifier: MIT
"""TunableOp, PyTorch's tuner of GEMMs: plan, run, read and merge its files.

In reading order:

- ``gemm``: One line of a TunableOp file: a matrix product as BLAS sees it, read and written exactly as PyTorch does.
- ``matrices``: Facts that decide how BLAS is called: a tensor's sizes, strides and type, and the rules of platform and
  release.
- ``blas_calls``: The BLAS call that PyTorch makes of a matrix product: letters, M/N/K, leading dimensions, batch.
- ``recorder``: Run a model without weights and write down every matrix product it asks BLAS for.
- ``generation``: One way to generate text that is the same on a GPU, on a CPU and on the meta device, for recording
  and planning.
- ``planner``: TunableOp, PyTorch's GEMM tuner: plan every matrix product that generation asks for, without weights or
  a GPU.
- ``cost``: The time that a tuning takes, from what TunableOp does with each candidate.
- ``files``: TunableOp files: read, check and write what PyTorch's GEMM tuner stores, in every form since torch 2.3.
- ``file_tools``: Work with TunableOp files: merge, subtract, filter, compare, and say why PyTorch would refuse one.
- ``in_words``: Say in words what a line of a TunableOp file stands for: which product, whose, and why M and N changed
  places.
- ``tuning``: Tune a list of products on one GPU or several, stop at any time, and go on where it stopped.
- ``search``: TunableOp's search in slow motion: the same steps in Python, and a reader of the log that the real one
  writes.
- ``experiments``: TunableOp off, tuning and tuned, each in a process of its own, so that no run profits from
  another's warm caches.
- ``tuned_elsewhere``: Read what other tuners leave: hipBLASLt's bench log and tuning file, vLLM's files for experts,
  AITER's CSV files.
- ``coverage``: Which products or experts of a model a tuned file covers, and which of its lines applies to each.
- ``attention``: The back end that attention takes: a fused kernel, which asks BLAS for nothing, or matrix products.
- ``experts``: The products of a mixture of experts: one for each expert that gets tokens, with the tokens spread
  evenly.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.cost import call_seconds, tuning_seconds
    from rocm_guide.tune.tunableop.coverage import Coverage, covers
    from rocm_guide.tune.tunableop.experiments import (
        apply_mode,
        compare_matmul,
        compare_model,
        time_matmul,
        time_model,
    )
    from rocm_guide.tune.tunableop.file_tools import compare_files, explain_validators, merge, missing
    from rocm_guide.tune.tunableop.files import TuningFile, parse_text, read_file, write_file
    from rocm_guide.tune.tunableop.gemm import Gemm, TunableFileError, parse_gemm
    from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt
    from rocm_guide.tune.tunableop.in_words import describe_gemm
    from rocm_guide.tune.tunableop.matrices import CUDA_RULES, BlasRules
    from rocm_guide.tune.tunableop.planner import Plan, plan, plan_model
    from rocm_guide.tune.tunableop.recorder import record_gemms
    from rocm_guide.tune.tunableop.search import find_fastest, parse_log
    from rocm_guide.tune.tunableop.tuned_elsewhere import TunedElsewhere, read_tuned
    from rocm_guide.tune.tunableop.tuning import share_out, tune_file

__all__ = [
    "CUDA_RULES",
    "BlasRules",
    "Coverage",
    "Gemm",
    "Plan",
    "TunableFileError",
    "TunedElsewhere",
    "TuningFile",
    "apply_mode",
    "call_seconds",
    "compare_files",
    "compare_matmul",
    "compare_model",
    "covers",
    "describe_gemm",
    "explain_validators",
    "find_fastest",
    "generate_fixed",
    "merge",
    "missing",
    "padded_prompt",
    "parse_gemm",
    "parse_log",
    "parse_text",
    "plan",
    "plan_model",
    "read_file",
    "read_tuned",
    "record_gemms",
    "share_out",
    "time_matmul",
    "time_model",
    "tune_file",
    "tuning_seconds",
    "write_file",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    "gemm",
    "matrices",
    "recorder",
    "generation",
    "planner",
    "cost",
    "files",
    "file_tools",
    "in_words",
    "tuning",
    "search",
    "experiments",
    "tuned_elsewhere",
    "coverage",
)
