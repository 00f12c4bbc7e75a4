"""A random sequence of faults on two to four rails. NETPATH_SEED and NETPATH_CHANGES choose another one (`make netpath-long`)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.netpath.builds import Build
from tests.netpath.hosts import RECEIVER, SENDER, Hosts
from tests.netpath.transfer import transfer

SEED = int(os.environ.get("NETPATH_SEED", "1"))
CHANGES = int(os.environ.get("NETPATH_CHANGES", "40"))

Change = Callable[[Hosts, int], None]
# Begin and end of each. All but the last two cut the rail.
FAULTS: dict[str, tuple[Change, Change]] = {
    "link of the sender": (lambda two, rail: two.link(SENDER, rail, "down"), lambda two, rail: two.link(SENDER, rail, "up")),
    "link of the receiver": (lambda two, rail: two.link(RECEIVER, rail, "down"), lambda two, rail: two.link(RECEIVER, rail, "up")),
    "data": (lambda two, rail: two.drop(RECEIVER, rail), lambda two, rail: two.pass_again(RECEIVER, rail)),
    "acknowledgements": (lambda two, rail: two.drop(SENDER, rail), lambda two, rail: two.pass_again(SENDER, rail)),
    "loss": (lambda two, rail: two.drop(RECEIVER, rail, percent=5), lambda two, rail: two.pass_again(RECEIVER, rail)),
    "slow": (lambda two, rail: two.shape(SENDER, rail, "50mbit"), lambda two, rail: two.unshape(SENDER, rail)),
}
CUTS = list(FAULTS)[:-2]


@pytest.mark.whole
@pytest.mark.timeout(3600)
def test_random_faults(plugin: Build, hosts: Callable[[int], Hosts], tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rails = chance.randint(2, 4)
    two = hosts(rails)
    under_way: dict[int, str] = {}
    with transfer(plugin, two, tmp_path, f"random:{SEED}:2000000", comms=3, UNDERSTUDY_NET_CRC=str(SEED % 2)) as running:
        running.wait_for_messages(20)
        for number in range(CHANGES):
            rail = chance.randrange(rails)
            if rail in under_way:
                change = f"end of {under_way[rail]}"
                FAULTS[under_way.pop(rail)][1](two, rail)
            else:
                cut = sum(fault in CUTS for fault in under_way.values())
                fault = chance.choice(list(FAULTS) if cut < rails - 1 else ["loss", "slow"])
                change = under_way[rail] = fault
                FAULTS[fault][0](two, rail)
            print(f"change {number} of seed {SEED}: rail {rail}: {change}", flush=True)
            running.wait_for_messages(20)
        for rail, fault in under_way.items():
            FAULTS[fault][1](two, rail)
        running.wait_for_messages(20)
        print(running.stop()["gap_ms"], running.stats(SENDER))
        assert running.total("failovers") > 0
