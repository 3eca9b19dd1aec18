# SPDX-License-Identifier: MIT
# ruff: noqa: E501 (one row of the table to a line)
"""Compare `fit` with the cases that cases.py measured: the text of fit_cases.md and its picture. Needs no GPU."""

import statistics

#: Measured when the formulae of the peak had been committed as they are now.
LATER = (
    "7b-lora-largest",
    "7b-lora-over",
    "7b-qlora-largest",
    "tiny-largest",
    "8b-generate",
    "7b-fsdp2",
    "13b-fsdp4",
    "7b-fsdp4-torch",
)


def predict(row: dict):
    """Return what `fit` says about a measured case, on a GPU with as much memory as the one that ran it had."""
    from rocm_guide.models.memory_planner import fit
    from rocm_guide.models.work import Workload

    case = row["case"]
    generate = case["method"] == "generate"
    work = Workload(
        method="inference" if generate else case["method"],
        batch=case["batch"],
        seq=case["seq"] + case.get("new", 0),
        precision=case.get("precision", "bf16"),
        checkpointing=case.get("checkpointing", False),
        kernels="liger" if case.get("liger", True) else "torch",
        rank=case.get("rank", 16),
        targets=tuple(case.get("targets", ())),
        dropout=case.get("dropout", 0.0),
        adapter_fp32=case["method"] != "qlora",
    )
    gpus = case.get("gpus", 1)
    gpu = "H200" if "H200" in row["hardware"] else "H100"
    memory = row["device_bytes"] / 1e9
    return fit(fields_of_case(case), work, gpu=gpu, count=gpus, fsdp=gpus > 1, memory_gb=memory)


def fields_of_case(case: dict) -> dict:
    """Return the configuration that a case runs: a shape, perhaps with fewer layers or quantised."""
    from rocm_guide.models.shapes import SHAPES

    fields = dict(SHAPES[case["model"]])
    if "layers" in case:
        fields["num_hidden_layers"] = case["layers"]
    if case.get("quantised") == "int8":
        fields["quantization_config"] = {
            "quant_method": "fbgemm_fp8"
        }  # a byte a weight, a float a row: as torch's int8
    return fields


def report(rows: dict[str, dict]) -> tuple[str, list[str]]:
    """Return the text of fit_cases.md, and the targets of the project that these rows miss."""
    head = "| case | model | method | batch x tokens | what else | measured GB | computed GB | error | peak at | reserved GB | outside torch GB | fit says |"
    lines = [head, "|" + " --- |" * 12]
    plans = {name: predict(row) for name, row in rows.items()}
    errors = {n: 100 * (plans[n].peak / r["peak"] - 1) for n, r in rows.items() if r["outcome"] == "ran"}
    false = [n for n in rows if n not in errors and plans[n].fits]
    for name, row in rows.items():
        case, plan = row["case"], plans[name]
        measured = f"out of memory | {plan.peak / 1e9:.2f} | "
        if name in errors:
            measured = f"{row['peak'] / 1e9:.2f} | {plan.peak / 1e9:.2f} | {errors[name]:+.2f} %"
        says = "fits" if plan.fits else "does not fit"
        lines.append(
            f"| {name} | {case['model']} | {case['method']} | {case['batch']} x {case['seq']} | {_what(case)} | {measured} | {plan.moment} | {row['reserved'] / 1e9:.2f} | {row['outside_torch'] / 1e9:.2f} | {says} |"
        )
    median, worst = _spread(errors.values())
    later = [n for n in LATER if n in rows and "NVIDIA H" in rows[n]["hardware"]]
    strict = [errors[n] for n in later if n in errors]
    missed = [f"{n} ran out of memory and fit says that it fits" for n in false]
    missed += ["the median error is above 5 %"] * (median > 5)
    missed += [f"{n}: {e:+.1f} %" for n, e in errors.items() if abs(e) > (3 if rows[n]["case"].get("group") else 12)]
    hardware = sorted({r["hardware"] for r in rows.values()})
    versions = next(iter(rows.values()))["versions"]
    text = [
        "# `fit` against measured peak memory",
        "",
        f"{'; '.join(hardware)}; {', '.join(f'{k} {v}' for k, v in versions.items())}.",
        "Random weights, three training steps each, one process per case; made by benchmarks/memory/cases.py.",
        "Measured: torch.cuda.max_memory_allocated() over the training steps. GB are 10^9 bytes.",
        "",
        f"{len(errors)} cases ran, {len(rows) - len(errors)} ran out of memory. Error of the computed peak: median {median:.2f} %, worst {worst:.2f} %.",
        f"Cases that ran out of memory and of which fit says today that they fit: {', '.join(false) or 'none'}.",
        "",
        *_history(len(rows), len(later), strict),
        *_at_the_limit(rows, plans),
        "",
        "## All cases",
        "",
        *lines,
        "",
    ]
    return "\n".join(text), missed


def _what(case: dict) -> str:
    """Return what else is special about a case, in words."""
    said = {
        "checkpointing": case.get("checkpointing"),
        "torch kernels": not case.get("liger", True),
        "fp32 states": case.get("precision") == "mixed",
        f"FSDP on {case.get('gpus')}": "gpus" in case,
        f"dropout {case.get('dropout')}": "dropout" in case,
        f"{case.get('new')} new tokens": "new" in case,
        f"{case.get('layers')} layers": "layers" in case,
        f"{case.get('quantised')} weights": "quantised" in case,
    }
    return ", ".join(words for words, true in said.items() if true)


def _spread(errors) -> tuple[float, float]:
    """Return the median and worst of the errors' sizes."""
    sizes = sorted(map(abs, errors))
    return statistics.median(sizes), sizes[-1]


def _history(rows: int, later: int, strict: list[float]) -> list[str]:
    if not strict:
        return []
    return [
        f"The formulae of the peak are those of the commit that brought the first {rows - later} rows. The {later} rows after it are predictions",
        "in the strict sense: {} of them ran, median {:.2f} %, worst {:.2f} %.".format(len(strict), *_spread(strict)),
        "",
    ]


def _at_the_limit(rows: dict[str, dict], plans: dict) -> list[str]:
    """Return what the cases near the card's memory say about the margin for fragmentation."""
    from dataclasses import replace

    from rocm_guide.models.memory_planner import FRAGMENTED, fit

    head = "| case | batch | ended | peak GB | torch could have GB | room over the peak | held over the peak | largest batch by fit now | room there |"
    lines = [head, "|" + " --- |" * 9]
    ran: dict[str, float] = {}
    failed: dict[str, float] = {}
    for name, row in rows.items():
        plan, case = plans[name], row["case"]
        could = row["device_bytes"] - row["outside_torch"]
        if not 0.9 < plan.total / plan.budget < 1.1:
            continue
        ended = row["outcome"] == "ran"
        peak = row["peak"] if ended else plan.peak
        (ran if ended else failed)[name] = margin = 100 * (could / peak - 1)
        held = f"{100 * (row['reserved'] / peak - 1):.1f} %" if ended else "all of it"
        most = plan.largest_batch
        there = "none"
        if most:
            same = {"gpu": plan.gpu, "count": plan.count, "fsdp": plan.count > 1, "memory_gb": plan.budget / 1e9}
            best = fit(fields_of_case(case), replace(plan.work, batch=most), **same)
            there = f"{100 * (could / best.peak - 1):.1f} %, {'this case' if most == case['batch'] else 'not run'}"
        lines.append(
            f"| {name} | {case['batch']} | {row['outcome']} | {peak / 1e9:.2f} | {could / 1e9:.2f} | {margin:.1f} % | {held} | {most} | {there} |"
        )
    if not (ran and failed):
        return ["No two cases, one that ran and one that did not, came within 10 % of the memory of their GPU."]
    tight, close = min(ran, key=lambda n: ran[n]), max(failed, key=lambda n: failed[n])
    over = (plans[close].total - plans[close].budget) / 1e9
    return [
        "## At the limit",
        "",
        "Torch's caching allocator cannot hand out every byte that it holds: free pieces may be too small. So a plan needs",
        f"room over its peak, and fit asks for {100 * FRAGMENTED:.0f} %. It first asked for 3 %, and said that {close} fits, which ran out of",
        "memory. What the cases say that came within 10 % of the card (where a run failed, its peak is the computed one):",
        "",
        *lines,
        "",
        f"The least room with which a case ran is {ran[tight]:.1f} % ({tight}); the most with which one failed is {failed[close]:.1f} %",
        f"({close}, now {over:.2f} GB over the limit). {100 * FRAGMENTED:.0f} % is above both: fit would rather refuse a plan that would have",
        "run, as it does here, than promise one that would not. This is evidence, not proof. The margin was chosen after the",
        "failure; it rests on a few runs of one card; of the largest batches that fit names now only the one marked has run;",
        "and no FSDP run came near its limit (its reserved memory is far above the peak because nothing asked for it back).",
        "Take a plan that fits by a hair as one that may not.",
    ]


def picture(rows: dict[str, dict]) -> bytes:
    """Draw computed against measured peaks, and the errors by case, as PNG."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    ran = {n: (r["peak"] / 1e9, predict(r).peak / 1e9) for n, r in rows.items() if r["outcome"] == "ran"}
    hardware = "; ".join(sorted({r["hardware"] for r in rows.values()}))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 6.2), width_ratios=(1, 1.15))
    top = max(m for pair in ran.values() for m in pair) * 1.08
    left.fill_between([0, top], [0, 0.95 * top], [0, 1.05 * top], color="#DDDDDD", label="within 5 %")
    left.plot([0, top], [0, top], color="#333333", linewidth=1)
    for i, method in enumerate(("full", "lora", "qlora", "generate")):
        points = [ran[n] for n in ran if rows[n]["case"]["method"] == method]
        left.plot([p[0] for p in points], [p[1] for p in points], "o", color=PALETTE[i], label=method)
    left.set(xlabel="measured peak (GB)", ylabel="computed peak (GB)", title="fit against the allocator's peak")
    left.legend()
    names = list(ran)
    right.barh(names, [100 * (ran[n][1] / ran[n][0] - 1) for n in names], color=PALETTE[0], height=0.6)
    right.axvline(0, color="#333333", linewidth=1)
    right.set(xlim=(-12, 12), xlabel="error of the computed peak (%), axis at the accepted worst", title="by case")
    right.tick_params(axis="y", labelsize=8)
    right.invert_yaxis()
    figure.supxlabel(hardware, fontsize=8, color="#6B6B6B")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()
