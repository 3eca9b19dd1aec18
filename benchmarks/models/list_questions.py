# SPDX-License-Identifier: MIT
"""A data set of any size with Alpaca's columns, made of the course's own facts: read a list, say one line of it.

PYTHONPATH=. python -m benchmarks.models.list_questions rows.jsonl 3000
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rocm_guide.models.course_data import facts


def rows(count: int) -> list[dict[str, str]]:
    """Return ``count`` rows with instruction, input and output; about 600 characters each."""
    known, found = facts(), []
    for i in range(count):
        part = [known[(7 * i + 13 * k) % len(known)] for k in range(6)]
        asked = part[i % 6]
        listed = "\n".join(f"- {fact.subject}: {fact.answer}" for fact in part)
        others = " ".join(f"{fact.subject} is {fact.answer}." for fact in part[:3])
        output = f"{asked.answer}. In the list, {asked.subject} is {asked.answer}; {others}"
        found.append(
            {"instruction": f"Read the list and say what {asked.subject} is.", "input": listed, "output": output}
        )
    return found


if __name__ == "__main__":
    lines = [json.dumps(row) for row in rows(int(sys.argv[2]))]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
