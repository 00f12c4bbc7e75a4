#!/usr/bin/env bash
# One command for a machine with one GPU and torch >= 2.13: train on the GPU, kill a rank, compare bit by bit.
#
#   scripts/gpu_check.sh                  uses `python3`; PYTHON=... for another interpreter
#   RANKS=4 STEPS=100 scripts/gpu_check.sh
#   WHEELS=folder scripts/gpu_check.sh    wheels of packages that the machine lacks; they go into a folder of this run
#
# Nothing is installed for the machine and no network is needed. docs/evidence/gpu.md describes the check. Exit code 0: identical.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
ranks=${RANKS:-2}
steps=${STEPS:-60}
work=demo-runs/gpu-$(date +%Y%m%d-%H%M%S)
mkdir -p "$work"
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec > >(tee "$work/log") 2>&1

if [[ -n ${WHEELS:-} ]]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-cache-dir --target "$work/site" "$WHEELS"/*.whl
    export PYTHONPATH="$PWD/src:$PWD/$work/site${PYTHONPATH:+:$PYTHONPATH}"
fi

echo "== The machine"
"$python" - <<'PY'
import importlib
import sys

wanted = "cryptography fastapi httpx jwt msgpack numpy prometheus_client psutil pydantic rich sqlalchemy torch typer uvicorn uvloop websockets xxhash".split()
missing = []
for name in wanted:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f"{name} ({error})")
if missing:
    sys.exit(f"missing: {', '.join(missing)}. Bring their wheels and name the folder: WHEELS=folder scripts/gpu_check.sh")

import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11):
    sys.exit(f"torch {torch.__version__} is too old: 2.11 or newer is needed")
if not torch.cuda.is_available():
    sys.exit("torch sees no GPU")
nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else "none"
print(f"{torch.cuda.get_device_name(0)}, {torch.cuda.device_count()} visible, torch {torch.__version__}, NCCL {nccl}")
PY
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}

# $1: folder for the final states; the rest: arguments of the script. Plain torchrun: no part of Understudy at work.
plain() {
    local final=$1
    shift
    timeout 180 "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
        examples/train_gpt.py --device cuda --final "$final" "$@"
}

echo "== Which backend lets $ranks ranks share one GPU"
backend=
attempt() { # $1: what is tried; $2: backend
    if plain "$work/probe" --backend "$2" --steps 2 > "$work/probe.log" 2>&1; then
        backend=$2
        echo "$1: works"
    else
        echo "$1: does not work: $(grep -m1 -E 'Error|error|Duplicate' "$work/probe.log" || tail -n1 "$work/probe.log")"
    fi
}
export NCCL_MULTI_RANK_GPU_ENABLE=1
attempt "NCCL with NCCL_MULTI_RANK_GPU_ENABLE=1" nccl
if [[ -z $backend ]]; then
    unset NCCL_MULTI_RANK_GPU_ENABLE
    attempt "NCCL with an NCCL_HOSTID for each rank" nccl
fi
if [[ -z $backend ]]; then
    attempt "Gloo with CUDA tensors" gloo
fi
[[ -n $backend ]] || { echo "no backend works; see $work/probe.log"; exit 2; }

echo "== Does this GPU compute the same bits twice, without Understudy?"
for run in first second; do
    plain "$work/$run" --backend "$backend" --steps "$steps" > "$work/$run.log" 2>&1 ||
        { echo "plain torchrun failed; see $work/$run.log"; exit 2; }
done
for ((rank = 0; rank < ranks; rank++)); do
    cmp "$work/first/rank$rank.json" "$work/second/rank$rank.json" ||
        { echo "no: two undisturbed runs differ, so a comparison would say nothing"; exit 2; }
done
rm -rf "$work/probe" "$work/first" "$work/second"
echo "yes: two undisturbed runs are identical on all ranks"

echo "== One kill, $backend"
"$python" examples/demo.py --device cuda --ranks "$ranks" --kill-rank $((ranks - 1)) --steps "$steps" \
    --folder "$work" --backend "$backend"

kinds=("$backend")
if [[ $backend == nccl ]] && "$python" -c 'import sys, torch.distributed as d; sys.exit(not hasattr(d, "ProcessGroupNCCL2"))'; then
    kinds+=(nccl2)  # joined again in place, by torch's _reconfigure
fi
for kind in "${kinds[@]}"; do
    echo "== Does $kind keep what a backend promises?"
    "$python" -m tests.contract.backend "$kind"
    echo "yes"
    if [[ $kind == nccl* ]]; then
        echo "== Does the time that a GPU computes itself tell which of two ranks is slow, with $kind?"
        timeout 180 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.contract.device_times "$kind"
        echo "yes"
    fi
done

if [[ $backend == nccl ]]; then
    echo "== What goes into collectives: is it sampled rightly, and what does that cost?"
    "$python" -m tests.contract.device_samples
    echo "yes"
fi

for kind in $(printf '%s\n' gloo "$backend" | sort --unique); do
    echo "== Is a fault of the GPU seen for what it is? ($kind)"
    "$python" -m tests.contract.device_fault "$kind"
    echo "yes"
done
