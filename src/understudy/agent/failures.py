"""Fold the errors of many ranks into a few lines. The first error of the job is reported separately, last and once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby

from understudy.core.events import ScriptFailed
from understudy.messages import agents


def folded(failures: Collection[ScriptFailed], reported: str) -> list[str]:
    """Return lines about these failures. `reported`: the message about the end of the job, with the traceback of its first error."""
    by_text: dict[str, set[int]] = {}
    for failure in failures:
        if failure.rank >= 0:
            by_text.setdefault(failure.traceback.strip() or failure.summary, set()).add(failure.rank)
    first = next((failure.rank for failure in failures if _is_first(failure, reported)), -1)
    lines: list[str] = []
    for text, ranks in sorted(by_text.items(), key=lambda item: min(item[1])):
        if text in reported:
            if others := ranks - {first}:
                lines.append(agents.FAILED_LIKE_THAT(ranks=_ranks(others)))
            continue
        frames, _, last = text.rpartition("\n")
        same_line = frames and frames in reported
        lines.append(agents.FAILED_ALSO(ranks=_ranks(ranks), error=last if same_line else text))
    return lines


def _is_first(failure: ScriptFailed, reported: str) -> bool:
    return f"rank {failure.rank} ({failure.worker} " in reported


def _ranks(ranks: Iterable[int]) -> str:
    """Format ranks as "ranks 1-3, 7"."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(sorted(ranks)), key=lambda pair: pair[1] - pair[0])]
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"rank{'s' * (len(shown) > len(str(runs[0][0])))} {shown}"
