"""What a user's own options for claimed nodes set, in every way in which sbatch takes them."""

from __future__ import annotations

import pytest

from understudy.schedulers.slurm.chosen import chosen, last
from understudy.schedulers.slurm.resources import Resources

NODE = Resources(8, 4000, {"gpu:a100": 4, "nic": 2})
GPUS = {"gpu", "shard", "mps"}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", set()),
        ("--qos=urgent --exclusive --ntasks-per-node=2 --gres-flags=enforce-binding --gpu-freq=low --mem-bind=local --mincpus=4", set()),
        ("-p gpu -n2 -N 1 -Cbig -Acc -pcG -J -- + x", set()),
        ("--mem=100G", {"mem"}),
        ("--mem 100G", {"mem"}),
        ("--mem-per-cpu=1G", {"mem"}),
        ("--mem-per-g 1G", {"mem"}),
        ("--cpus-per-task=2", {"cpu"}),
        ("--cpus-per-t 2", {"cpu"}),
        ("-c2", {"cpu"}),
        ("-c 2", {"cpu"}),
        ("-sQc2", {"cpu"}),
        ("--cpus-per-gpu=2", {"cpu"}),
        ("-G8", GPUS),
        ("-G h100:8", GPUS),
        ("--gpus=8", GPUS),
        ("--gpus-per-node=h100:8", GPUS),
        ("--gpus-per-s=8", GPUS),
        ("--gpus-per-task 8", GPUS),
        ("--gres=gpu:h100:8", GPUS),
        ("--gres shard:8", GPUS),
        ("--gres=gres/gpu=8,nic", {*GPUS, "nic"}),
        ("--gres=NONE", {"none"}),
        ("--tres-per-task=cpu:4,gres/gpu:2", {"cpu", *GPUS}),
        ("-S2", {"spec"}),
        ("--thread-spec=2 --mem=0 -c1", {"spec", "mem", "cpu"}),
    ],
)
def test_what_options_set(options: str, names: set[str]) -> None:
    assert chosen(options.split()) == names


def test_the_last_of_an_option_counts() -> None:
    assert last("gres", ["--gres=nic:1", "--qos=x", "--gres", "gpu:h100:8"]) == "gpu:h100:8" and last("gres", ["--gpus=8"]) == ""


@pytest.mark.parametrize("options", ["--exclude=n[1-3]", "--exclud n[1-3]", "-x n[1-3]", "-Qxn[1-3]", "-xm1 -x n[1-3]"])
def test_excluded_nodes(options: str) -> None:
    assert last("exclude", options.split()) == "n[1-3]" and not chosen(options.split())


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], NODE),
        (["--mem=1G"], Resources(8, 0, NODE.gres)),
        (["-c1"], Resources(0, 4000, NODE.gres)),
        (["--gpus=h100:8"], Resources(8, 4000, {"nic": 2})),
        (["--gres=nic:1"], Resources(8, 4000, {"gpu:a100": 4})),
        (["--gres=none"], Resources(8, 4000, {})),
    ],
)
def test_what_they_set_is_not_asked_for_nor_compared(options: list[str], left: Resources) -> None:
    assert NODE.without(chosen(options)) == left


def test_shares_of_gpus_are_not_asked_for_if_the_user_asks_for_gpus() -> None:
    """Slurm refuses to be asked for both."""
    assert Resources(1, 1, {"shard": 8}).without(chosen(["--gpus=1"])).gres_option("") == []
