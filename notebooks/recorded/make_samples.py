# SPDX-License-Identifier: MIT
# ruff: noqa: C408, E501
"""Write the profiler samples of this folder: one table of dispatches in every published format.

We have no MI300X: the numbers are ours, only the formats are the tools'. Because all files hold the same dispatches,
every reader must report the same totals. Formats:
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
rocprof, rocprofv2: https://rocm.docs.amd.com/projects/rocprofiler/en/latest/how-to/using-rocprof.html
rocprof-compute: https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/how-to/analyze/cli.html
"""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KERNELS = (  # name, mean ns, VGPRs, accum VGPRs, SGPRs, LDS, grid, workgroup, FMA_F32, MOPS_BF16, read KiB, written KiB
    (
        "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1",
        412_000,
        256,
        256,
        96,
        65536,
        77824,
        256,
        0,
        537_000_000,
        98_304,
        32_768,
    ),
    (
        "void rms_norm_kernel<__hip_bfloat16>(__hip_bfloat16*, __hip_bfloat16 const*, float, int)",
        9_600,
        24,
        0,
        32,
        512,
        1048576,
        256,
        98_304,
        0,
        16_384,
        16_384,
    ),
    (
        "void act_and_mul_kernel<silu>(__hip_bfloat16*, __hip_bfloat16 const*, int)",
        21_500,
        20,
        0,
        24,
        0,
        2097152,
        256,
        450_000,
        0,
        44_032,
        22_016,
    ),
    (
        "fmha_fwd_d128_bf16_batch_b128x128x32x128x32x128",
        88_000,
        168,
        64,
        80,
        33792,
        131072,
        256,
        3_000_000,
        33_554_432,
        24_576,
        8_192,
    ),
)


def dispatches() -> list[dict[str, Any]]:
    rng = random.Random(7)
    now, rows = 2_414_192_765_353_337, []
    for i in range(24):
        name, mean, vgpr, acc, sgpr, lds, grid, group, fma, mops, read, written = KERNELS[i % 4]
        took = int(mean * rng.uniform(0.96, 1.06))
        rows.append(
            dict(
                id=i + 1,
                kernel=10 + i % 4,
                name=name,
                start=now,
                end=now + took,
                vgpr=vgpr,
                acc=acc,
                sgpr=sgpr,
                lds=lds,
                grid=grid,
                group=group,
                counters={
                    "SQ_WAVES": grid // 64,
                    "SQ_INSTS_VALU_FMA_F32": fma,
                    "SQ_INSTS_VALU_MFMA_MOPS_BF16": mops,
                    "FETCH_SIZE": read,
                    "WRITE_SIZE": written,
                },
            )
        )
        now += took + rng.randrange(900, 6_000)
    return rows


def table(name: str, header: str, rows: list[list[Any]], quote: bool = True) -> None:
    with (HERE / name).open("w", newline="") as f:
        writer = csv.writer(f, quoting=csv.QUOTE_NONNUMERIC if quote else csv.QUOTE_MINIMAL, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(rows)


def database(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the tables of a rocpd database that hold dispatches and counters (schema version 3, one process)."""
    import sqlite3

    path.unlink(missing_ok=True)
    tag = "_00004242_0000_7000_8000_000000000001"
    names = list(rows[0]["counters"])
    with sqlite3.connect(path) as db:
        db.executescript(f"""
            CREATE TABLE "rocpd_metadata{tag}" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
            CREATE TABLE "rocpd_info_pmc{tag}" (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, name TEXT, symbol TEXT);
            CREATE TABLE "rocpd_pmc_event{tag}" (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, pmc_id INTEGER, value REAL);
            CREATE TABLE "rocpd_info_kernel_symbol{tag}" (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER,
                code_object_id INTEGER, kernel_name TEXT, display_name TEXT, group_segment_size INTEGER,
                private_segment_size INTEGER, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);
            CREATE TABLE "rocpd_kernel_dispatch{tag}" (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
                agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,
                "end" BIGINT, private_segment_size INTEGER, group_segment_size INTEGER, workgroup_size_x INTEGER,
                workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER,
                grid_size_z INTEGER, region_name_id INTEGER, event_id INTEGER);
            CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM "rocpd_kernel_dispatch{tag}";
            INSERT INTO "rocpd_metadata{tag}" (tag, value) VALUES ('schema_version', '3');
        """)
        for i, name in enumerate(names):
            db.execute(f'INSERT INTO "rocpd_info_pmc{tag}" VALUES (?, ?, 1, 1, ?, ?)', (i + 1, "g", name, name))
        for i, k in enumerate(KERNELS):
            values = (10 + i, "g", 1, 1, 1, f"_Z{i}", k[0], k[5], 0, k[4], k[2], k[3])
            db.execute(f'INSERT INTO "rocpd_info_kernel_symbol{tag}" VALUES ({", ".join("?" * 12)})', values)
        for r in rows:
            launch = (
                r["id"],
                "g",
                1,
                1,
                1,
                4,
                r["kernel"],
                r["id"],
                1,
                1,
                r["start"],
                r["end"],
                0,
                r["lds"],
                r["group"],
                1,
                1,
                r["grid"],
                1,
                1,
                1,
                500 + r["id"],
            )
            db.execute(f'INSERT INTO "rocpd_kernel_dispatch{tag}" VALUES ({", ".join("?" * 22)})', launch)
            for i, name in enumerate(names):
                row = (None, "g", 500 + r["id"], i + 1, float(r["counters"][name]))
                db.execute(f'INSERT INTO "rocpd_pmc_event{tag}" VALUES (?, ?, ?, ?, ?)', row)


def main() -> None:
    rows = dispatches()
    database(HERE / "rocprofv3_results.db", rows)
    table(
        "rocprofv3_kernel_trace.csv",
        "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,"
        "End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Workgroup_Size_X,"
        "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z",
        [
            [
                "KERNEL_DISPATCH",
                "Agent 4",
                1,
                1,
                4242,
                r["id"],
                r["kernel"],
                r["name"],
                r["id"],
                r["start"],
                r["end"],
                r["lds"],
                0,
                r["vgpr"],
                r["acc"],
                r["sgpr"],
                r["group"],
                1,
                1,
                r["grid"],
                1,
                1,
            ]
            for r in rows
        ],
    )
    table(
        "rocprofv3_counter_collection.csv",
        "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,Workgroup_Size,"
        "LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Counter_Name,Counter_Value,Start_Timestamp,"
        "End_Timestamp",
        [
            [
                r["id"],
                r["id"],
                "Agent 4",
                1,
                4242,
                4242,
                r["grid"],
                r["kernel"],
                r["name"],
                r["group"],
                r["lds"],
                0,
                r["vgpr"],
                r["acc"],
                r["sgpr"],
                c,
                float(v),
                r["start"],
                r["end"],
            ]
            for r in rows
            for c, v in r["counters"].items()
        ],
    )
    stats: dict[str, list[int]] = {}
    for r in rows:
        stats.setdefault(r["name"], []).append(r["end"] - r["start"])
    whole = sum(sum(spans) for spans in stats.values())
    table(
        "rocprofv3_kernel_stats.csv",
        "Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev",
        [[n, len(t), sum(t), sum(t) / len(t), 100 * sum(t) / whole, min(t), max(t), 0.0] for n, t in stats.items()],
    )
    table(
        "rocprof_results.stats.csv",
        "Name,Calls,TotalDurationNs,AverageNs,Percentage",
        [[n, len(t), sum(t), sum(t) // len(t), 100 * sum(t) / whole] for n, t in stats.items()],
    )
    table(
        "rocprofv3_hip_api_trace.csv",
        "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
        [
            ["HIP_RUNTIME_API", "hipLaunchKernel", 4242, 4242, r["id"], r["start"] - 9_000, r["start"] - 6_500]
            for r in rows
        ],
    )
    table(
        "rocprofv3_memory_copy_trace.csv",
        "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp",
        [
            [
                "MEMORY_COPY",
                "MEMORY_COPY_HOST_TO_DEVICE",
                1,
                "Agent 0",
                "Agent 4",
                900 + i,
                2_414_192_684_609_085 + i * 200_000,
                2_414_192_684_709_085 + i * 200_000,
            ]
            for i in range(3)
        ],
    )
    names = list(rows[0]["counters"])
    table(
        "rocprof_results.csv",
        "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,sig,obj,"
        + ",".join(names)
        + ",DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs",
        [
            [
                r["id"] - 1,
                r["name"] + " [clone .kd]",
                0,
                0,
                2 * r["id"],
                4242,
                4242,
                r["grid"],
                r["group"],
                r["lds"],
                0,
                r["vgpr"],
                r["acc"],
                r["sgpr"],
                64,
                "0x0",
                "0x7f7b27c04500",
                *(float(r["counters"][n]) for n in names),
                r["start"] - 9_000,
                r["start"],
                r["end"],
                r["end"] + 900,
                r["end"] - r["start"],
            ]
            for r in rows
        ],
    )
    wide = (
        "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
        "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,"
    )
    full = [
        [
            r["id"],
            0,
            1,
            4242,
            4242,
            r["grid"],
            r["group"],
            r["lds"],
            0,
            r["vgpr"],
            r["acc"],
            r["sgpr"],
            64,
            r["name"],
            r["start"],
            r["end"],
            r["id"],
            *(float(r["counters"][n]) for n in names),
        ]
        for r in rows
    ]
    table("rocprofv2_results.csv", wide + ",".join(names), full)
    folder = HERE / "rocprof_compute"
    folder.mkdir(exist_ok=True)
    table("rocprof_compute/pmc_perf.csv", wide + ",".join(names), full, quote=False)
    table(
        "rocprof_compute/pmc_kernel_top.csv",
        "Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct",
        [
            [
                n,
                float(len(t)),
                float(sum(t)),
                sum(t) / len(t),
                float(sorted(t)[len(t) // 2]),
                round(100 * sum(t) / whole, 2),
            ]
            for n, t in stats.items()
        ],
        quote=False,
    )
    table(
        "rocprof_compute/2.1_System_Speed-of-Light.csv",
        "Metric,Avg,Unit,Peak,Pct of Peak",
        [
            ["VALU FLOPs", 478.0, "Gflop/s", 81715.2, 0.58],
            ["MFMA FLOPs (BF16)", 331250.0, "Gflop/s", 1307443.2, 25.34],
            ["Active CUs", 288, "Cus", 304, 94.74],
            ["L2 Cache Hit Rate", 71.3, "Pct", 100.0, 71.3],
            ["L2-Fabric Read BW", 910.4, "Gb/s", 5300.0, 17.18],
            ["LDS Bank Conflicts/Access", "N/A", "Conflicts/access", 32, "N/A"],
        ],
        quote=False,
    )


if __name__ == "__main__":
    main()
