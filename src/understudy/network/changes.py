"""Apply the steps of a host, and undo them.

Before anything is changed, a *record* is written: a file with every step and the values before it. Therefore `undo` can also revert an
`apply` that was killed in the middle. An `apply` that fails reverts what it has done. A second one does only what is missing, keeps the
first record's values, and reverts steps that the configuration does not have any more.

After a restart of the machine nothing of this is left in the kernel, so `undo` then only removes the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from understudy.common import rail_state
from understudy.messages import network_rails
from understudy.network.configuration import BadNetwork, Network
from understudy.network.kernel import Kernel, KernelRefused
from understudy.network.steps import AnyStep, Outcome, SettingStep, Step, wanted

RECORD = Path("/var/lib/understudy/network-before.json")
ABOUT = (
    "The network of this host before `understudy network apply`. `understudy network undo` restores it and removes this file: "
    "keep it until then."
)


@dataclass(frozen=True)
class Record:
    about: str
    boot: str  # of the machine, when it was written
    namespace: str  # the network namespace
    steps: tuple[Step, ...]

    @staticmethod
    def of_here(steps: Sequence[AnyStep]) -> Record:
        return Record(ABOUT, boot(), namespace(), tuple(steps))


@dataclass(frozen=True)
class Applied:
    done: tuple[AnyStep, ...]
    there: tuple[AnyStep, ...]  # whose effect was there already
    reverted: tuple[tuple[AnyStep, Outcome], ...]  # of an earlier configuration


@dataclass(frozen=True)
class Undone:
    restarted: bool  # the machine was restarted since, so nothing was left
    steps: tuple[tuple[AnyStep, Outcome], ...]


_ADAPTER = TypeAdapter(Record)


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespace() -> str:
    return str(Path("/proc/self/ns/net").readlink())


def load(path: Path) -> Record | None:
    """Return the record of an earlier `apply` on this machine and network; None: there is none. Raises `BadNetwork`."""
    try:
        found = _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadNetwork(network_rails.RECORD_UNUSABLE(path=path, reason=error.strerror)) from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise BadNetwork(network_rails.RECORD_UNUSABLE(path=path, reason=problem)) from error
    if found.boot == boot() and found.namespace != namespace():
        raise BadNetwork(network_rails.RECORD_OF_ANOTHER(path=path))
    return found


def pending(network: Network, kernel: Kernel) -> list[tuple[AnyStep, bool]]:
    """Return the steps of this host, each with whether its effect is there. Changes nothing. Raises `BadNetwork`, `KernelRefused`."""
    return [(step, step.is_there(kernel)) for step in wanted(network, kernel)]


def apply(network: Network, kernel: Kernel, path: Path) -> Applied:
    """Do what is missing. `path`: of the record. Raises `BadNetwork`, `KernelRefused`; then everything is as it was before."""
    earlier = load(path)
    known = {step.key: step for step in earlier.steps} if earlier is not None and earlier.boot == boot() else {}
    found = pending(network, kernel)
    missing = [_with_first_value(step, known.get(step.key)) for step, there in found if not there]
    kept = {**known, **{step.key: step for step in missing}}
    _save(path, Record.of_here(list(kept.values())))
    done: list[AnyStep] = []
    try:
        for step in missing:
            done.append(step)
            step.do(kernel)
    except BaseException as error:  # including Ctrl-C
        try:
            _revert(done, known, kernel)
        except KernelRefused as problem:
            raise BadNetwork(network_rails.NOT_REVERTED(path=path, reason=str(error), problem=str(problem))) from error
        _restore_record(path, earlier)
        raise
    keys = {step.key for step, _ in found}
    outdated = [step for step in reversed(known.values()) if step.key not in keys]
    reverted = tuple((step, step.revert(kernel)) for step in outdated)
    _save(path, Record.of_here([step for step in kept.values() if step.key in keys]))
    return Applied(tuple(missing), tuple(step for step, there in found if there), reverted)


def undo(kernel: Kernel, path: Path) -> Undone:
    """Restore what the record has, last step first, and remove it. Raises `BadNetwork`, `KernelRefused`; then the record is kept."""
    record = load(path)
    if record is None:
        raise BadNetwork(network_rails.NOTHING_APPLIED(path=path))
    restarted = record.boot != boot()
    steps = tuple((step, Outcome.GONE if restarted else step.revert(kernel)) for step in reversed(record.steps))
    path.unlink()
    return Undone(restarted, steps)


def _with_first_value(step: AnyStep, known: AnyStep | None) -> AnyStep:
    """A setting that has been changed again since: the value before is that of the first record."""
    if isinstance(step, SettingStep) and isinstance(known, SettingStep):
        return SettingStep(step.name, step.value, known.before)
    return step


def _revert(done: Sequence[AnyStep], known: dict[tuple[str, str], AnyStep], kernel: Kernel) -> None:
    """Revert what a failed apply has done; the last step may have been done in part. What an earlier one had done, is done again."""
    for step in reversed(done):
        if (earlier := known.get(step.key)) is not None:
            earlier.do(kernel)
        else:
            step.revert(kernel)


def _restore_record(path: Path, earlier: Record | None) -> None:
    if earlier is None:
        path.unlink(missing_ok=True)
    else:
        _save(path, earlier)


def _save(path: Path, record: Record) -> None:
    try:
        rail_state.replace(path, _ADAPTER.dump_json(record, indent=1))
    except OSError as error:
        raise BadNetwork(network_rails.RECORD_UNUSABLE(path=path, reason=error.strerror)) from error
