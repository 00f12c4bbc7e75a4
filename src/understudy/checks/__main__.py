"""`python -m understudy.checks --json OPTIONS`: run the checks and print a `Report` as JSON. For agents; people have `check-node`.

OPTIONS is a JSON object with fields of `Options`; {} means the defaults. The peers' shared secret is in UNDERSTUDY_TOKEN. The
exit code is 0 if the node passed, 1 if not, 2 if the options are invalid. If this process ends, the processes that it has started end, too.

`--one NAME` is for its own children (`isolation`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from understudy.checks.isolation import serve_one
from understudy.checks.options import Options
from understudy.checks.registry import CHECKS
from understudy.checks.runner import run_all
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.detectors.configuration import read
from understudy.messages import node_checks


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m understudy.checks", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", metavar="OPTIONS", help="as a JSON object")
    what.add_argument("--one", metavar="NAME", choices=list(CHECKS), help="with options and token on standard input")
    arguments = parser.parse_args()
    if arguments.one is not None:
        return serve_one(arguments.one)
    try:
        report = run_all(read(Options, json.loads(arguments.json)), os.environ.get(TOKEN_VARIABLE, "").strip())
    except ValueError as error:
        say(node_checks.OPTIONS_UNUSABLE(problem=str(error)))
        return 2
    print(report.model_dump_json())
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
