# SPDX-License-Identifier: MIT
"""Published measurements of an MI300X, and how far likely times lie from them.

The points, their sources and what was left out and why stand in ``published.toml`` beside this file. No point has a
constant of its own; "held out" are points that gave no constant, though the model's form was chosen with all in sight.
``python -m cdna.predict.published`` prints all of them.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cdna.predict.achieved import CONSTANTS, WAIT_US, LikelyTime, likely, product_time
from cdna.predict.specs import HardwareError, gpu
from cdna.predict.times import LEFT_OUT, ModelTime

__all__ = [
    "Accuracy",
    "LeftOut",
    "Published",
    "accuracy",
    "attention_time",
    "caveat",
    "left_out",
    "published_points",
    "table",
]


@dataclass(frozen=True)
class Published:
    """One measurement in print, and what the model says.

    Attributes:
        kind: ``product``, ``stream``, ``rows`` or ``attention``.
        what: whose kernel, and the shape.
        microseconds: as published, or computed from the published rate.
        likely: the model's time for the same work.
        fitted: a constant of the model was taken from it.
        title, url, date: of the source.
        left_out: why it does not count; empty where it does.
    """

    kind: str
    what: str
    microseconds: float
    likely: LikelyTime
    fitted: bool
    title: str
    url: str
    date: str
    left_out: str

    @property
    def error(self) -> float:
        """Likely / published - 1: below 0 the model is faster than the measurement."""
        return self.likely.microseconds / self.microseconds - 1


@dataclass(frozen=True)
class LeftOut:
    """Published figures that are not compared: how many, and why."""

    what: str
    count: int
    reason: str
    url: str


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text("utf-8"))


def attention_time(
    batch: int, heads: int, queries: int, keys: int, size: int, *, causal: bool = False, in_order: bool = False
) -> ModelTime:
    """Return the bound of a Triton attention forward pass in 16 bits, from what the executor counted of one workgroup.

    Args:
        size: of a head: 64 or 128, the two that were executed.
        in_order: the tiles of queries start from the first on, as in ROCm's Triton kernel, so that a causal launch may
            begin its longest workgroup last; the course's kernel begins with that one.

    >>> print(likely(attention_time(2, 48, 16384, 8192, 128)))  # ROCm's documentation: 17,592 us
    bound 13,181.4 us, likely 17,143.0 us (compute units, 1.61 GHz)

    Raises:
        HardwareError: heads of another size.
    """
    spec = gpu("MI300X")
    counted = _data()["attention"].get(str(size))
    if counted is None:
        raise HardwareError(f"size={size}: heads of {' or '.join(_data()['attention'])} were executed")
    mean = (keys + 128) / 2 if causal else keys  # that a workgroup of 128 queries reads
    fullest = math.ceil(batch * heads * math.ceil(queries / 128) / spec.units)
    two, one = divmod(fullest, 2)
    cycles = sum(n * (start + each * mean) for n, (start, each) in ((two, counted["two"]), (one, counted["one"])))
    if in_order:
        cycles += (keys - mean) * counted["one"][1]
    mhz, flops = spec.flops["bf16"][1], 4 * 128 * size * mean * fullest * spec.units
    moved = 4 * batch * heads * (queries + keys) * size
    parts = {"compute units": cycles / mhz, "HBM": moved / spec.bandwidth_tb_s / 1e6}
    return ModelTime(parts, matrix=flops / spec.peak_tflops("bf16") / 1e6)


def _product(source: dict[str, Any], point: dict[str, Any]) -> tuple[str, LikelyTime, float]:
    m, n, k = point["m"], point["n"], point["k"]
    time = product_time(m, n, k, point["dtype"])
    parts = dict(time.parts)
    if "block_k" in source:
        parts["waits"] = math.ceil(k / source["block_k"]) * WAIT_US
    return f"{point['dtype']} {m} x {n} x {k}", likely(parts), 2 * m * n * k


def _stream(_: dict[str, Any], point: dict[str, Any]) -> tuple[str, LikelyTime, float]:
    moved = 10e9  # bytes: long enough that a launch does not count; no size is published
    return f"{point['stream']}, large arrays", likely({"HBM": moved / gpu("MI300X").bandwidth_tb_s / 1e6}), moved


def _rows(source: dict[str, Any], point: dict[str, Any]) -> tuple[str, LikelyTime, float]:
    moved = source["bytes"] * point["rows"]
    time = likely({"HBM": moved / gpu("MI300X").bandwidth_tb_s / 1e6}, waits=source["waits"])
    return f"{point['rows']} rows", time, moved


def _attention(_: dict[str, Any], point: dict[str, Any]) -> tuple[str, LikelyTime, float]:
    b, h, q, k, d = (point[n] for n in ("batch", "heads", "queries", "keys", "size"))
    causal = point["causal"]
    text = f"{b} x {h} heads, {q} x {k} x {d}{', causal' if causal else ''}"
    time = likely(attention_time(b, h, q, k, d, causal=causal, in_order=True))
    return text, time, 4 * b * h * q * k * d / (2 if causal else 1)


_KINDS = {"product": _product, "stream": _stream, "rows": _rows, "attention": _attention}


@cache
def published_points() -> tuple[Published, ...]:
    """Return every published point beside its likely time; those with a reason in ``left_out`` do not count.

    >>> [(p.what, f"{p.error:+.0%}") for p in published_points() if "4864" in p.what]
    [('hipBLASLt: fp16 4096 x 4864 x 32896', '-8%'), ('hipBLASLt: bf16 4096 x 4864 x 32896', '-0%')]
    """
    found = []
    for source in _data()["source"]:
        for i, values in enumerate(source["points"]):
            point = dict(zip(source["columns"], values, strict=True))
            text, time, work = _KINDS[source["kind"]](source, point)
            rate = point["tflops"] * 1e6 if "tflops" in point else point["gb_s"] * 1e3 if "gb_s" in point else 0
            us = point["us"] if "us" in point else work / rate
            where = (source["title"], source["url"], source["date"], source.get("left_out", ""))
            fitted = i < source.get("fit", 0)
            found.append(Published(source["kind"], f"{source['what']}: {text}", us, time, fitted, *where))
    return tuple(found)


def left_out() -> tuple[LeftOut, ...]:
    """Return figures in print for which the model has no time, in groups."""
    return tuple(LeftOut(**entry) for entry in _data()["left_out"])


@dataclass(frozen=True)
class Accuracy:
    """How far likely times lie from published ones.

    Attributes:
        points: how many are compared; ``fitted`` of them gave a constant.
        median, worst: absolute errors, as shares of the published time.
        held_out: the median of the points that gave no constant.
        left_out: published figures that are not compared.
    """

    points: int
    fitted: int
    median: float
    worst: float
    held_out: float
    left_out: int

    def __str__(self) -> str:
        return (
            f"median error {self.median:.0%} over {self.points} published points of an MI300X "
            f"({self.held_out:.0%} over the {self.points - self.fitted} held out), at most {self.worst:.0%}; "
            f"{self.left_out} left out with a reason (python -m cdna.predict.published)"
        )


def accuracy(points: Sequence[Published] | None = None) -> Accuracy:
    """Return how far the model lies from ``points``: all published ones by default.

    Raises:
        HardwareError: none of them counts.
    """
    points = published_points() if points is None else points
    counted = [p for p in points if not p.left_out]
    if not counted:
        raise HardwareError("no point that counts: give published_points() or some of it")
    errors = [abs(p.error) for p in counted]
    held_out = [abs(p.error) for p in counted if not p.fitted]
    return Accuracy(
        len(counted),
        len(counted) - len(held_out),
        statistics.median(errors),
        max(errors),
        statistics.median(held_out or errors),
        len(points) - len(counted) + sum(group.count for group in left_out()),
    )


def caveat(left_out: str) -> str:
    """Return what stands beside predicted times: what their bound does not charge, one of
    :data:`cdna.predict.times.LEFT_OUT` or the like, and how far likely times lie from published ones.
    """
    return f"not charged: {left_out}; likely times: {accuracy()}"


def _row(p: Published) -> str:
    us = f"{p.microseconds:>10,.1f} {p.likely.bound:>10,.1f} {p.likely.microseconds:>10,.1f}"
    return f"{p.what:<70} {us} {p.error:>+6.0%}  {'fitted' if p.fitted else p.likely.limit}"


def table() -> str:
    """Return a line for each point (published, bound and likely microseconds, likely / published - 1, the limit), then
    what is left out and why, then the constants and the sources.
    """
    points = published_points()
    head = f"{'MI300X, microseconds':<70} {'published':>10} {'bound':>10} {'likely':>10} {'error':>6}  limit"
    lines = [head, *(_row(p) for p in points if not p.left_out)]
    for reason in dict.fromkeys(p.left_out for p in points if p.left_out):
        lines += ["", f"left out: {reason}", *(_row(p) for p in points if p.left_out == reason)]
    lines += ["", "left out, no likely time:", *(f"  {g.count} x {g.what}: {g.reason} ({g.url})" for g in left_out())]
    lines += ["", "constants:", *(f"  {name} = {v:.3f} {unit}: {why}" for name, (v, unit, why) in CONSTANTS.items())]
    sources = dict.fromkeys(f"  {p.title} ({p.date}), {p.url}" for p in points)
    for kind in _KINDS:
        some = accuracy([p for p in points if p.kind == kind])
        lines.append(f"{kind}: median error {some.median:.0%} over {some.points} points, at most {some.worst:.0%}")
        lines.append(f"  its bound does not charge {LEFT_OUT.get(kind, LEFT_OUT['bytes'])}")
    everything = [abs(p.error) for p in points]
    lines.append(
        f"with the {len(points) - accuracy().points} points that are left out: median error "
        f"{statistics.median(everything):.0%}, at most {max(everything):.0%}"
    )
    return "\n".join([*lines, "", "sources:", *sources, "", f"likely times: {accuracy()}"])


if __name__ == "__main__":
    print(table())
