"""Measure how fast the network plugin is, without NCCL: bytes per second between two network namespaces, as ratios.

    python benchmarks/netpath.py --rounds 9 --seconds 3 --json netpath.json

Needs root, a C++ compiler, and for the first two cases iperf3. In each round the two sides of a ratio are measured one after the other,
so that a machine that is faster or slower from one minute to the next is so for both; the result is the median of the rounds' ratios,
with the quartiles.

- loopback, veth: the plugin on one rail relative to `iperf3 -P N`, where N is the number of sockets that NCCL's own socket transport opens
  by default (NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD: 1 times 1, except on AWS and Google Cloud, as NCCL's documentation has it).
- rails: the plugin on two rails, both shaped to the same rate, relative to the plugin on one of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from recovery import ROOT, machine

sys.path.insert(0, str(ROOT))

from tests.netpath.builds import Build, build, missing_compiler
from tests.netpath.hosts import RECEIVER, SENDER, Hosts, hosts, missing
from tests.netpath.transfer import transfer

PORT = "5201"
Measure = Callable[[], float]  # 10^6 bytes per second


def plugin(made: Build, two: Hosts, args: argparse.Namespace, interfaces: str) -> Measure:
    def measure() -> float:
        settings = {"UNDERSTUDY_NET_IFNAME": interfaces, "UNDERSTUDY_NET_SOCKETS": str(args.sockets)}
        with tempfile.TemporaryDirectory() as folder, transfer(made, two, Path(folder), str(args.bytes), comms=1, **settings) as running:
            time.sleep(args.seconds)
            return float(running.stop()["mb_s"])

    return measure


def iperf(two: Hosts, args: argparse.Namespace, address: str) -> Measure:
    def measure() -> float:
        server = subprocess.Popen(
            two.command(RECEIVER, "iperf3", "-s", "-1", "--forceflush", "-p", PORT), stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        while "listening" not in server.stdout.readline():
            assert server.poll() is None, "iperf3 does not start"
        client = two.command(SENDER, "iperf3", "-c", address, "-p", PORT, "-P", args.connections, "-t", args.seconds, "-J")
        try:
            done = subprocess.run(client, capture_output=True, text=True, check=True, timeout=60 + 10 * args.seconds)
            server.communicate(timeout=60)
        finally:
            server.kill()
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e6

    return measure


def compare(name: str, ours: Measure, other: Measure, rounds: int) -> dict[str, object]:
    pairs = [(ours(), other()) for _ in range(rounds)]
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{name}: {median:.2f} ({low:.2f}-{high:.2f}) in {rounds} rounds; medians {mine:.0f} and {theirs:.0f} MB/s", flush=True)
    return {"case": name, "ratio": median, "quartiles": [low, high], "rounds": rounds, "mb_s": [mine, theirs], "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="at least 2")
    parser.add_argument("--seconds", type=int, default=3, help="of one measurement")
    parser.add_argument("--bytes", type=int, default=1 << 22, help="size of a message")
    parser.add_argument("--sockets", type=int, default=2, help="of the plugin, per rail")
    parser.add_argument("--connections", type=int, default=1, help="of iperf3")
    parser.add_argument("--rate", default="200mbit", help="to which each of two rails is shaped")
    parser.add_argument("--json", type=Path, help="write the result here")
    args = parser.parse_args()
    if why := missing_compiler() or missing():
        raise SystemExit(why)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder), "plugin", "-O2")
        if shutil.which("iperf3"):
            with hosts(1) as two:
                one = Hosts(0)
                one.names = (two.names[RECEIVER], two.names[RECEIVER])  # both ends in one namespace
                results.append(compare("loopback", plugin(made, one, args, "lo"), iperf(one, args, "127.0.0.1"), args.rounds))
                results.append(compare("veth", plugin(made, two, args, "r"), iperf(two, args, "10.71.0.2"), args.rounds))
        else:
            print("loopback, veth: not measured, because iperf3 is not installed")
        with hosts(2) as two:
            for rail in range(2):
                two.shape(SENDER, rail, args.rate)
            results.append(compare("rails", plugin(made, two, args, "r"), plugin(made, two, args, "=r0"), args.rounds))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "arguments": sys.argv[1:], "results": results}, indent=1))


if __name__ == "__main__":
    main()
