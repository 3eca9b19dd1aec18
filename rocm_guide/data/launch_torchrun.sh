#!/bin/bash
# SPDX-License-Identifier: MIT
# One training run over several machines, without a scheduler. Run the same line on every machine, the first one first:
#
#   FIRST=node01 NODES=1:2 OUTPUT=runs/run1 bash launch_torchrun.sh --model … --dataset …
#
# FIRST    name of the machine that keeps the list of who takes part; the others must reach its PORT
# NODES    machines: "2" for exactly two, "1:2" to go on while at least one is left
# GPUS     processes on each machine, one for each GPU
# OUTPUT   a folder that all machines see: checkpoints are read back from it after a machine was lost
# If machines do not find each other, name their network card: export NCCL_SOCKET_IFNAME=… GLOO_SOCKET_IFNAME=…
# What follows goes to the training program, which `rocm-guide script 05 --out train.py` writes.
set -euo pipefail

: "${FIRST:?set FIRST to the name of the first machine}"
: "${OUTPUT:?set OUTPUT to a folder that all machines see}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-8}"
# Without it, agents that share one store lose each other when a machine joins late, comes back or is lost.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nnodes="${NODES:-2}" \
  --nproc-per-node="${GPUS:-8}" \
  --max-restarts=3 \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$FIRST:${PORT:-29500}" \
  --rdzv-id="${RUN_ID:-rocm-guide}" \
  --rdzv-conf=last_call_timeout=15,keep_alive_interval=2,keep_alive_max_attempt=5 \
  train.py --out "$OUTPUT" "$@"
