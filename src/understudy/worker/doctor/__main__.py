"""`python -m understudy.worker.doctor --json`: all that can be found out with torch imported, as JSON, for `understudy doctor`.

`--internals` prints only the results for torch's internals, for a worker that starts under a torch that is not tested
(`worker.doctor.start`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from understudy.common import tested
from understudy.worker.doctor import findings, machine
from understudy.worker.doctor.base import ProbeResult
from understudy.worker.doctor.internals import try_all, way_of_joining


def main() -> None:
    parser = argparse.ArgumentParser(prog="understudy.worker.doctor", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", action="store_true", help="everything")
    what.add_argument("--internals", action="store_true", help="only torch's internals")
    options = parser.parse_args()
    answer = os.dup(1)
    os.dup2(2, 1)  # output of torch and its parts must not get into the JSON
    found = list(try_all())
    text = json.dumps(internals(found) if options.internals else everything(found), indent=1)
    sys.stdout.flush()
    with os.fdopen(answer, "w") as out:
        print(text, file=out)
    sys.stderr.flush()
    os._exit(0)  # without waiting for what communicators have left (`base.KEPT`)


def internals(found: list[ProbeResult]) -> list[dict[str, Any]]:
    return [{**asdict(one), "fatal": one.fatal} for one in found]


def everything(found: list[ProbeResult]) -> dict[str, Any]:
    """Return the findings for a person, and the data that they were made from."""
    versions, gpus, system, limits = machine.versions(), machine.gpus(), machine.system(), machine.limits()
    vendors = machine.vendors()
    waits, lifeline, way = machine.waits(), machine.lifeline(), way_of_joining(found)
    listed = [
        findings.of_torch(versions["torch"], versions["torch build"]),
        *findings.of_internals(found),
        findings.of_joining(way),
        *findings.of_gpus(gpus, versions.get("nccl", ""), versions["torch build"], vendors),
        findings.of_waits(waits, system["architecture"]),
        findings.of_lifeline(lifeline),
        *findings.of_limits(limits),
    ]
    return {
        "findings": [asdict(one) for one in listed],
        "tested": {"torch": tested.TORCH, "python": tested.PYTHON},
        "versions": versions,
        "gpus": gpus,
        "devices of": vendors,
        "system": system,
        "limits": limits,
        "variables": machine.variables(),
        "groups are joined again": way,
        "waits": waits,
        "lifeline": lifeline,
        "internals": internals(found),
    }


if __name__ == "__main__":
    main()
