# SPDX-License-Identifier: MIT
"""The predicted times on an MI300X that come with the package, one for each case, and where they are kept.

They are made by ``python -m course predict`` (:mod:`rocm_guide.observe.measure.predict`), which compiles and
executes the kernels; to read them takes a moment. Each carries a digest of the kernels' source, types and options, so
that a test notices when a kernel has changed and its prediction has not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cdna.predict.times import LEFT_OUT
from rocm_guide.common.base import GuideError, package_folder, write_text

__all__ = ["GPU", "Launched", "Prediction", "PredictionError", "read_predictions", "write_predictions"]

#: The one GPU that the predictions are for.
GPU = "MI300X"
#: What the prediction of a case does not charge, unless it is a rung of the ladder, which has a model of its own.
_LEFT_OUT = (
    "compute units in each other's way, the Infinity Cache, lines fetched twice, what only the last workgroup of a "
    "split sum does, a launch and a clock below its peak"
)
_FORMAT = "rocm-guide predictions 1"
_NAME = "mi300x_predictions.json"


class PredictionError(GuideError):
    """A file of predictions that cannot be read."""


@dataclass(frozen=True)
class Launched:
    """One kernel of a case on an MI300X, in the model.

    Attributes:
        kernel: its name.
        workgroups: of the launch.
        resident: workgroups on a compute unit at a time.
        waves: on each SIMD.
        rounds: how often the GPU is filled.
        cycles: until the last workgroup is done, by instructions, waits and units of the compute unit.
    """

    kernel: str
    workgroups: int
    resident: int
    waves: float
    rounds: float
    cycles: int


@dataclass(frozen=True)
class Prediction:
    """The time of a case on an MI300X, by the model of its own kernels.

    Attributes:
        case: its name.
        parts: microseconds by what is busy: ``compute units``, ``L2`` or ``Infinity Cache``, ``HBM``.
        launches: the kernels, in their order.
        source: digest of what the prediction was made from.
    """

    case: str
    parts: dict[str, float]
    launches: tuple[Launched, ...]
    source: str

    @property
    def limit(self) -> str:
        """The part that takes longest.

        >>> Prediction("a case", {"compute units": 2.0, "HBM": 3.0}, (), "").limit
        'HBM'
        """
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def us(self) -> float:
        """Microseconds: no launch can take less, by this model."""
        return self.parts[self.limit]

    @property
    def left_out(self) -> str:
        """What ``us`` does not charge, in words."""
        # The model of the ladder's rungs is the one with this part.
        return LEFT_OUT["rung"] if "Infinity Cache" in self.parts else _LEFT_OUT


def _prediction(name: str, data: dict[str, Any]) -> Prediction:
    launches = tuple(Launched(**launch) for launch in data["launches"])
    parts = {str(part): float(us) for part, us in data["parts"].items()}
    if not parts or not all(us > 0 for us in parts.values()) or not launches:
        raise ValueError(f"{name} has no positive time")
    return Prediction(name, parts, launches, str(data["source"]))


def parse_predictions(text: str, name: str = _NAME) -> tuple[str, dict[str, Prediction]]:
    """Return Triton's version, and the predictions by case.

    Raises:
        PredictionError: the text is none of ours.
    """
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT or data["gpu"] != GPU:
            raise ValueError("another format or GPU")
        return str(data["triton"]), {n: _prediction(n, found) for n, found in data["cases"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise PredictionError(
            f"{name}: no predictions ({type(e).__name__}: {e!s:.80}); write them with python -m course predict"
        ) from e


@cache
def read_predictions() -> dict[str, Prediction]:
    """Read the predictions that come with the package, by case.

    Raises:
        PredictionError: the file is damaged or missing.

    >>> found = read_predictions()["ladder naive fp16 4096"]
    >>> found.limit, found.us > 841
    ('compute units', True)
    """
    try:
        text = resources.files("rocm_guide").joinpath("data/mi300x_predictions.json").read_text("utf-8")
    except OSError as e:
        raise PredictionError(f"{_NAME}: cannot be read ({e}); write it with python -m course predict") from e
    return parse_predictions(text)[1]


def write_predictions(predictions: Iterable[Prediction], path: Path | None = None) -> Path:
    """Write predictions, with the GPU and Triton's version; returns the path."""
    import triton

    cases = {}
    for p in predictions:
        found = asdict(p)
        del found["case"]
        found["parts"] = {part: round(us, 3) for part, us in p.parts.items()}
        cases[p.case] = found
    data = {
        "format": _FORMAT,
        "gpu": GPU,
        "what": "microseconds by a model (rocm_guide/observe/measure/predict.py): kernels compiled for gfx942 and "
        "executed on a CPU; nothing was measured on an MI300X",
        "triton": triton.__version__,
        "cases": cases,
    }
    return write_text(path or package_folder() / "data" / _NAME, json.dumps(data, indent=1) + "\n")
