"""Nodes like those of a job: what is asked for, and whether it was given. Small scripts on PATH stand in for Slurm's programs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.message_texts import has, refused
from tests.schedulers.slurm.programs import Programs

from understudy.messages import slurm
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.slurm import likeness
from understudy.schedulers.slurm.resources import Resources, least, listed

NOW = time.mktime((2026, 11, 26, 4, 0, 0, 0, 0, -1))
NODE = Resources(8, 4000, {"gpu:a100": 4})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def shows(programs: Programs, *lines: str, job: str = "7") -> None:
    programs.answer(
        "scontrol show job --details --oneliner " + job, f"JobId={job} JobName=x UserId=a(1) NumCPUs=9 {' '.join(lines)} Mem=x\n"
    )


# -- what the job has ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Nodes=n1 CPU_IDs=0-7 Mem=4000 GRES=gpu:a100:4(IDX:0-3)", Resources(8, 4000, {"gpu:a100": 4})),
        ("Nodes=n1 CPU_IDs=0,2-3,8 Mem=0 GRES=", Resources(4, 0, {})),
        ("Nodes=n1 CPU_IDs= Mem=0 GRES=", Resources(0, 0, {})),
        ("Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:3(IDX:0,2-3),shard:1K", Resources(1, 1, {"gpu": 3, "shard": 1024})),
        (
            "Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:3g.20gb:2(IDX:0-1),gpu:1g.5gb:7(IDX:2-8)",
            Resources(1, 1, {"gpu:3g.20gb": 2, "gpu:1g.5gb": 7}),
        ),
        ("Nodes=n1 CPU_IDs=0 Mem=1 GRES=mps:100(50/50,0/50),x:0,:3,y,z:q", Resources(1, 1, {"mps": 100})),
    ],
)
def test_what_a_node_has(line: str, found: Resources) -> None:
    assert listed(f"NumCPUs=3 {line} MinCPUsNode=1") == {"n1": found} and Resources.of_json(found.as_json()) == found


@pytest.mark.parametrize("line", ["", "Nodes=n1", "Nodes=n1 CPU_IDs=x Mem=1 GRES=", "CPU_IDs=0 Mem=1 GRES=", "Nodes=n1 CPU_IDs=0 Mem=1"])
def test_what_is_no_list_has_nothing(line: str) -> None:
    assert listed(line) == {}


@pytest.mark.parametrize(
    ("other", "every"),
    [
        (Resources(4, 8000, {"gpu:a100": 1}), Resources(4, 4000, {"gpu:a100": 1})),
        (Resources(8, 4000, {"gpu:a100": 4, "shard": 2}), NODE),
        (Resources(8, 4000, {}), Resources(8, 4000, {})),
        (Resources(8, 4000, {"gpu:h100": 2, "gpu:h200": 1}), Resources(8, 4000, {"gpu": 3})),
    ],
)
def test_what_every_node_has(other: Resources, every: Resources) -> None:
    assert least([NODE, other]) == least([other, NODE, NODE]) == every


def test_only_nodes_of_the_step_count_as_long_as_there_are_any(programs: Programs) -> None:
    shows(programs, "Nodes=n1 CPU_IDs=0 Mem=500 GRES=gpu:3(IDX:0-2)", "Nodes=n[2-3] CPU_IDs=0 Mem=500 GRES=gpu:1(IDX:0)")
    for names, each in (("n1", "n1"), ("n[2-3]", "n2\nn3"), ("n[1-3]", "n1\nn2\nn3"), ("n9", "n9")):
        programs.answer(f"scontrol show hostnames {names}", f"{each}\n")
    counts = [likeness.needed("7", nodes).gres["gpu"] for nodes in ("n1", "n[2-3]", "n[1-3]", "n9")]
    assert counts == [3, 1, 1, 1]


# -- what is asked for -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ({}, []),
        (
            {"Partition": "gpu", "QOS": "high", "Account": "a", "Reservation": "r"},
            ["--account=a", "--partition=gpu", "--qos=high", "--reservation=r"],
        ),
        (
            {"QOS": "normal", "Account": "(null)", "Features": "", "MCS_label": "N/A", "CoreSpec": "*", "MinTmpDiskNode": "0"},
            ["--qos=normal"],
        ),
        ({"OverSubscribe": "NO"}, ["--exclusive"]),
        ({"OverSubscribe": "USER"}, ["--exclusive=user"]),
        ({"OverSubscribe": "MCS"}, ["--exclusive=mcs"]),
        ({"OverSubscribe": "YES"}, ["--oversubscribe"]),
        ({"OverSubscribe": "OK"}, []),
        ({"Licenses": "app:4,disk,far@there:5", "NumNodes": "2"}, ["--licenses=app:2,disk,far@there:2"]),
        ({"Features": "big&fast"}, ["--constraint=big&fast"]),
        ({"Features": "big", "Prefer": "fast"}, ["--constraint=big", "--prefer=fast"]),
        ({"Features": "fast", "Prefer": "fast"}, ["--prefer=fast"]),
        (
            {"CoreSpec": "2", "ThreadSpec": "*", "WCKey": "w", "Network": "job_vni", "MCS_label": "m"},
            ["--core-spec=2", *("--wckey=w", "--network=job_vni", "--mcs-label=m")],
        ),
        (
            {"MinTmpDiskNode": "10G", "TresFreq": "gpu:low", "GresEnforceBind": "Yes"},
            ["--gpu-freq=low", "--gres-flags=enforce-binding", "--tmp=10G"],
        ),
        ({"MinMemoryNode": "1000M", "TresPerJob": "gres:gpu:9", "NumCPUs": "24"}, []),
        ({"TimeLimit": "01:00:00", "EndTime": "2026-11-26T05:00:00"}, ["--time=60"]),
        ({"TimeLimit": "01:00:00", "EndTime": "2026-11-26T03:00:00"}, ["--time=2"]),
        ({"TimeLimit": "UNLIMITED", "EndTime": "Unknown"}, ["--time=UNLIMITED"]),
        ({"TimeLimit": "UNLIMITED", "EndTime": "2027-11-26T05:00:00"}, ["--time=UNLIMITED"]),
        ({"TimeLimit": "01:00:00", "EndTime": "Unknown"}, []),
    ],
)
def test_a_node_like_those_of_the_job(job: dict[str, str], options: list[str]) -> None:
    found = likeness.options(job, 3, NODE, (), NOW)
    assert sorted(found) == sorted(["--cpus-per-task=8", "--mem=4000M", "--gres=gpu:a100:4", *options])


@pytest.mark.parametrize(
    ("job", "options"),
    [({"MinMemoryNode": "4000M"}, ["--mem=4000M"]), ({"MinMemoryCPU": "500M", "MinMemoryNode": "0"}, ["--mem-per-cpu=500M"]), ({}, [])],
)
def test_where_slurm_counts_no_memory_it_is_a_property_of_the_node(job: dict[str, str], options: list[str]) -> None:
    assert sorted(likeness.options(job, 3, Resources(0, 0, {}), (), NOW)) == sorted(options)


def test_the_users_default_wckey_is_not_asked_for() -> None:
    """Slurm writes it with an asterisk, which is no part of its name, and refuses it so where it enforces them."""
    assert not [option for option in likeness.options({"WCKey": "*usual"}, 3, NODE, (), NOW) if "wckey" in option]


def test_what_slurm_refuses_next_to_options_of_the_users_is_left_out() -> None:
    job = {"MinMemoryNode": "4000M", "CoreSpec": "2", "Partition": "gpu"}
    assert likeness.options(job, 3, Resources(), ("mem", "spec", "cpu"), NOW) == ["--partition=gpu"]


def test_shares_of_gpus_are_asked_for_if_there_are_no_whole_ones() -> None:
    """Slurm refuses to be asked for both."""
    assert "--gres=gpu:4" in Resources(1, 1, {"gpu": 4, "shard": 8}).options()
    assert "--gres=shard:8,x:1" in Resources(1, 1, {"shard": 8, "x": 1}).options()


@pytest.mark.parametrize(
    ("features", "have", "constraint"),
    [
        ("[rack1|rack2]", "big,rack2\nrack2\n", "rack2"),
        ("[rack1*2&rack2*2]", "rack1\nrack2\n", "rack1|rack2"),
        ("[(big&rack1)|(big&rack2)]", "big,rack1\nbig,rack1\n", "big&rack1"),
        ("big*2", "big\n", "big"),
        ("[rack1|rack2]", "", "rack1|rack2"),
    ],
)
def test_a_constraint_on_several_nodes_becomes_one_on_a_further_node(features: str, have: str, constraint: str, programs: Programs) -> None:
    programs.answer("sinfo --noheader --Node --nodes=n[1-2]", have)
    assert f"--constraint={constraint}" in likeness.options({"Features": features, "NodeList": "n[1-2]"}, 2, NODE, (), NOW)


# -- what was given --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        (NODE, ""),
        (Resources(9, 5000, {"gpu:a100": 5, "shard": 1}), ""),
        (Resources(7, 4000, {"gpu:a100": 4}), "7 of 8 CPUs"),
        (Resources(8, 3999, {"gpu:a100": 4}), "3999 of 4000 MiB of memory"),
        (Resources(8, 4000, {"gpu:t4": 4}), "0 of 4 gpu:a100"),
        (Resources(), "0 of 8 CPUs, 0 of 4000 MiB of memory, 0 of 4 gpu:a100"),
    ],
)
def test_what_is_missing(given: Resources, lacking: str) -> None:
    assert given.lacking(NODE) == lacking


def test_any_type_will_do_where_those_of_the_job_differ() -> None:
    assert Resources(1, 1, {"gpu:t4": 1, "gpu:l4": 1}).lacking(Resources(1, 1, {"gpu": 2})) == ""


def test_a_claimed_node_is_compared(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that is away is asked again; one that refuses leaves it unknown, and no rank goes there."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURMD_NODENAME", "n5")
    shows(programs, "Nodes=n5 CPU_IDs=0-7 Mem=4000 GRES=gpu:a100:4(IDX:0-3)", job="12")
    assert likeness.unlike(NODE) == ""
    shows(programs, "Nodes=n5 CPU_IDs=0-7 Mem=4000 GRES=gpu:a100:2(IDX:0-1)", job="12")
    assert has(likeness.unlike(NODE), slurm.LESS_THAN_THE_JOB, node="n5", missing="2 of 4 gpu:a100")
    programs.answer("scontrol", error="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert has(likeness.unlike(NODE), slurm.NOT_COMPARED, node="n5")

    def back(seconds: float) -> None:
        shows(programs, "Nodes=n5 CPU_IDs=0-7 Mem=4000 GRES=gpu:a100:4(IDX:0-3)", job="12")

    monkeypatch.setattr(time, "sleep", back)
    programs.answer("scontrol", error="Unable to contact slurm controller (connect failure)\n", code=1)
    assert likeness.unlike(NODE) == ""


def test_what_is_not_listed_is_not_known(programs: Programs) -> None:
    programs.answer("scontrol show job", "JobId=7 JobName=x UserId=a(1) NodeList=n1 Nodes=n1\n")
    with refused(SchedulerFailed, slurm.NOTHING_LISTED, job="7"):
        likeness.needed("7", "n1")
