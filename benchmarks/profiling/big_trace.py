# SPDX-License-Identifier: MIT
"""Measure the time and memory that a summary of a 500 MB trace takes.

    python -m benchmarks.profiling.big_trace --out benchmarks/results/big_trace.json

A real recording (a training step on an NVIDIA H100) is repeated with shifted times and new ids until the file is large
enough; then a fresh process summarises it. The repeated totals are known in advance, so the summary is checked too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rocm_guide.common.host import describe_cpu, host_facts

HERE = Path(__file__).parents[1]
SAMPLE = HERE.parent / "notebooks" / "recorded" / "train_b2.json.gz"
CHILD = """
import json, resource, sys, time
from rocm_guide.observe.profiling.torch_trace.summary import summarize
begin = time.perf_counter()
s = summarize(sys.argv[1])
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "peak_bytes": peak, "launches": s.launches, "work_us": s.work_us,
                  "slices": s.slices, "skipped": s.skipped}))
"""


def grow(target: Path, size: int) -> int:
    """Write a trace of at least ``size`` bytes; returns how many times the sample is in it."""
    events = [e for e in json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    copies = 0
    with target.open("w") as f:
        f.write('{"schemaVersion": 1, "deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}],\n"traceEvents": [\n')
        while f.tell() < size:
            for i, event in enumerate(events):
                args = dict(event.get("args", {}))
                for key in ("correlation", "Sequence number"):
                    if key in args:
                        args[key] += copies * 10_000_000
                shifted = {**event, "ts": event["ts"] + copies * 1e6, "args": args}
                f.write((",\n" if copies or i else "") + json.dumps(shifted, indent=2))
            copies += 1
        f.write("\n]}\n")
    return copies


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--megabytes", type=int, default=500)
    options = parser.parse_args()
    from rocm_guide.observe.profiling.torch_trace.summary import summarize

    one = summarize(SAMPLE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "big.json"
        copies = grow(file, options.megabytes * 1_000_000)
        size = file.stat().st_size
        run = subprocess.run([sys.executable, "-c", CHILD, str(file)], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["launches"] == copies * one.launches
    assert math.isclose(found["work_us"], copies * one.work_us, rel_tol=1e-6)
    for name, us in one.slices.items():
        assert math.isclose(found["slices"][name], copies * us, rel_tol=1e-6), name
    result = {
        "file_bytes": size,
        "copies_of_the_sample": copies,
        "seconds": round(found["seconds"], 2),
        "peak_gib": round(found["peak_bytes"] / 2**30, 3),
        "kernels": found["launches"],
        "machine": f"{describe_cpu()}, Python {platform.python_version()}",
        "host": host_facts(),
        "date": time.strftime("%Y-%m-%d"),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
