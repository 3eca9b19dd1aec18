# SPDX-License-Identifier: MIT
"""The shared parts of `rocm-guide tunable`'s commands: options that describe a workload, its plan, times in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import between

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.gemm import Gemm
    from rocm_guide.tune.tunableop.matrices import BlasRules
    from rocm_guide.tune.tunableop.planner import Plan

__all__ = [
    "Attention",
    "Batch",
    "Cache",
    "NewTokens",
    "Pad",
    "Platform",
    "Prompt",
    "lengths_of",
    "plan_for",
    "rules_of",
    "span",
]

#: Tokens of the longest prompt that is planned for; no model of today takes more.
LONGEST = 10_000_000


def _prompt(text: str) -> str:
    """Return the text itself, if :func:`lengths_of` can read it: said before the libraries are imported."""
    lengths_of(text)
    return text


Batch = Annotated[int, typer.Option(help="Sequences at once.", callback=between(1, 100_000))]
Prompt = Annotated[str, typer.Option(help="Prompt length in tokens: 100, or 5,12,100, or 1:256.", callback=_prompt)]
NewTokens = Annotated[int, typer.Option(help="Tokens to generate.", callback=between(1, LONGEST))]
Pad = Annotated[int, typer.Option(help="Pad prompts to a multiple of this.", callback=between(1, LONGEST))]
Cache = Annotated[str, typer.Option(help="dynamic or static.")]
Attention = Annotated[str, typer.Option(help="sdpa (fused kernels) or eager (matrix products).")]
Platform = Annotated[str, typer.Option(help="rocm or cuda: which rules decide about fused bias.")]

_TYPES = {"float": "float32", "tf32": "float32", "Half": "float16", "BFloat16": "bfloat16"}


def lengths_of(text: str) -> list[int]:
    """Parse ``100``, ``5,12,100`` or ``1:256`` (both ends included).

    >>> lengths_of("1:3"), lengths_of("5,12")
    ([1, 2, 3], [5, 12])
    """
    from rocm_guide.common.base import GuideError, shown

    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            found: range | list[int] = range(first, last + 1)
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise GuideError(f"--prompt {shown(text, 60)}: a length (100), several (5,12,100) or a range (1:256)") from None
    ends = (found[:1], found[-1:]) if isinstance(found, range) else (found, found)  # a range may be endless
    if not found or min(ends[0]) < 1 or max(ends[1]) > LONGEST:
        raise GuideError(f"--prompt {shown(text, 60)}: lengths are 1 to {LONGEST:,}, the first one not above the last")
    return list(found)


def rules_of(platform: str) -> BlasRules:
    """Return the rules that ``--platform`` names."""
    from rocm_guide.common.base import GuideError
    from rocm_guide.tune.tunableop.matrices import CUDA_RULES, BlasRules

    if platform not in ("rocm", "cuda"):
        raise GuideError(f"--platform {platform}: use rocm or cuda")
    return CUDA_RULES if platform == "cuda" else BlasRules()


def plan_for(
    gemms: Iterable[Gemm],
    model: str,
    batch: int,
    prompt: str,
    new_tokens: int,
    pad: int,
    cache: str,
    attention: str,
    platform: str,
) -> Plan:
    """Return the plan of ``model`` with the element type of these products, and leading dimensions if they have any."""
    from dataclasses import replace

    from cdna.cli.output import working
    from rocm_guide.tune.tunableop.planner import plan

    gemms = list(gemms)
    name = next((g.dtypes[0] for g in gemms if g.dtypes[0] in _TYPES), "BFloat16")
    rules = replace(rules_of(platform), tf32=name == "tf32", leading_dims=any(g.ld for g in gemms))
    with working(f"planning {model}"):
        return plan(
            model,
            batch=batch,
            prompt=lengths_of(prompt),
            new_tokens=new_tokens,
            pad=pad,
            cache=cache,
            dtype=_TYPES[name],
            attention=attention,
            rules=rules,
        )


def span(low: float, high: float) -> str:
    """Return two times in seconds as text, in a unit that suits the longer one.

    >>> span(3, 90), span(60, 600)
    ('3.0 to 90.0 s', '1.0 to 10.0 min')
    """
    unit, size = ("s", 1) if high < 120 else ("min", 60) if high < 7200 else ("h", 3600)
    return f"{low / size:.1f} to {high / size:.1f} {unit}"
