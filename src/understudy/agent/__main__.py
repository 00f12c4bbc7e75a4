"""`python -m understudy.agent --config FILE [--control-fd N]`: started by `understudy run`, one per node.

The job's token comes in the environment (UNDERSTUDY_TOKEN). Not meant to be started by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

from understudy.agent.config import AgentConfig
from understudy.agent.descendants import become_subreaper
from understudy.agent.service import Agent
from understudy.common.names import ENDED, TOKEN_VARIABLE, WORKERS
from understudy.links import messages


async def serve(config: AgentConfig, token: str, control: socket.socket | None) -> int:
    return await Agent(config, token, control).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m understudy.agent", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--control-fd", type=int, help="the command line's socket; without it only signals end us")
    arguments = parser.parse_args()
    config = AgentConfig.read(arguments.config)
    control = None
    if arguments.control_fd is not None:
        os.set_inheritable(arguments.control_fd, False)
        control = socket.socket(fileno=arguments.control_fd)
    messages.prepare()
    become_subreaper()
    (config.run_dir / WORKERS).mkdir(parents=True, exist_ok=True)
    code = asyncio.run(serve(config, os.environ.get(TOKEN_VARIABLE, ""), control))
    with contextlib.suppress(OSError):  # a full disk: the orchestrator knows it, too
        (config.run_dir / ENDED).write_text(f"{code}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
