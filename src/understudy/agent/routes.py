"""The destination of each worker's output: the prefix, torchrun's filters, and torchrun's files per local rank.

torchrun's `--redirects` and `--tee` refer to local ranks, so they apply once a worker has one. Its files are `LOG_DIR/<run
id>_<random>/attempt_<n>/<local rank>/stdout.log`; the next worker of a rank appends to them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from understudy.agent.config import AgentConfig
from understudy.agent.output import Route

STREAMS = {"stdout": 1, "stderr": 2}


class Routes:
    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._folder: Path | None = None

    def fresh(self, worker: str) -> Route:
        """Return the route of a worker without a rank."""
        return Route(f"[{worker}] ")

    def assigned(self, route: Route, worker: str, rank: int, environment: Mapping[str, str]) -> None:
        """Change the route of a worker that has taken a rank."""
        local = int(environment.get("LOCAL_RANK", "0"))
        config = self._config
        visible = config.shown_local_ranks is None or local in config.shown_local_ranks
        route.prefix = f"[rank {rank} {worker}] "
        for stream, number in STREAMS.items():
            teed = (local, number) in config.tees or (-1, number) in config.tees
            redirected = (local, number) in config.redirects or (-1, number) in config.redirects
            route.shown[stream] = visible and (teed or not redirected)
            if teed or redirected:
                folder = self._root(environment) / f"attempt_{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
                route.also[stream] = str(folder / str(local) / f"{stream}.log")

    def _root(self, environment: Mapping[str, str]) -> Path:
        if self._folder is None:
            base = Path(self._config.log_dir) if self._config.log_dir else self._config.run_dir / "ranks"
            base.mkdir(parents=True, exist_ok=True)
            run_id = environment.get("TORCHELASTIC_RUN_ID", "none").replace("/", "_")
            self._folder = Path(tempfile.mkdtemp(prefix=f"{run_id}_", dir=base))
        return self._folder
