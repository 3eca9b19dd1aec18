# SPDX-License-Identifier: MIT
"""Do our rules and CK's static_assert agree? Random instances, each judged by both: python benchmarks/ck/agreement.py.

Each takes 3 to 15 seconds of a core, because CK's headers are compiled for it. Prints one line for each and the sum;
exits with 1 if a verdict differs. No GPU and no ROCm.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/ck"))
from random_instances import random_instances

from rocm_guide.ck.build import ck_refuses
from rocm_guide.ck.rules import check


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="begin with this one")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    differ = accepted = 0
    chosen = itertools.islice(random_instances(asked.seed), asked.first, asked.first + asked.count)
    for number, (instance, problem) in enumerate(chosen, asked.first):
        ours, began = [r for r in check(instance, problem) if r.by_ck], time.monotonic()
        theirs = ck_refuses(instance, problem)
        accepted += not theirs
        agree = bool(ours) == bool(theirs)
        differ += not agree
        verdict = "agree" if agree else "DIFFER"
        print(
            f"{number:>4} {verdict}: {ours[0] if ours else 'ours accepts'} | {theirs[:150] or 'CK accepts'} "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        if not agree:
            print(instance, problem, flush=True)
    print(f"{asked.count} instances, {accepted} accepted by CK, {differ} verdicts differ")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
