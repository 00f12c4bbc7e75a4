"""Drills on the two workers that compute a step: why they could not, and their results."""

from __future__ import annotations

from understudy.messages.base import Message

_VALUES = (
    "The value is registered, but derived from something that is not: pass that to job.register, too. If it is derived from a clock, leave "
    "it out of the state_dict. If it changes after the vote, change it before optimizer.step"
)
_UNSTEADY = (
    "{causes}two attempts of the spare itself differ: the device does not compute reproducibly, or the step depends on something that is "
    "not registered and changes in it (a counter, a generator): {what}. "
)
_AGAIN = "Drill again: `understudy drill --rank RANK`."

COULD_NOT_BEGIN = Message(
    "US4640",
    "the drill could not begin: {error}",
    cause="The rank could not send its state to the spare, and continued with its step.",
    remedy=_AGAIN,
)
NOT_DRILLED = Message(
    "US4641",
    "cannot be drilled: {why}",
    cause="A spare cannot compute a step of this script alone.",
    remedy="Drill again later if the reason is temporary. Otherwise this script cannot be drilled.",
)
GRADIENTS_WITHHELD = Message(
    "US4642",
    "cannot be drilled now: a worker that takes over a rank does not have the gradients that were kept from an earlier step",
    cause="The worker of this rank is a newcomer, and gradients that were kept from an earlier step were not handed over to it.",
    remedy="Drill again after the next optimizer.zero_grad.",
)
NO_VOTE_YET = Message(
    "US4643",
    "this rank has not voted yet",
    cause="A drill needs the copy of a vote, and there is none yet.",
    remedy=_AGAIN,
)
CHANGED_UNFORESEEN = Message(
    "US4644",
    "the step changed {entry} before its vote for the first time, while its state was being sent. Drill again",
    cause="The step changes a parameter before its vote. This was not known, so there was no copy of the parameter as of the beginning of "
    "the step.",
    remedy=_AGAIN,
)
NOT_DESCRIBED_AT_VOTE = Message(
    "US4645",
    "the state of the rank at its vote could not be described: {error!r}",
    cause="The rank could not describe its state for the comparison, and continued with its step.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
NOT_DESCRIBED_AT_END = Message(
    "US4646",
    "the state of the rank after its step could not be described: {error!r}",
    cause="The rank could not describe its state for the comparison, and continued.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
DRILL_OVER = Message(
    "US4647",
    "the drill is over",
    cause="The spare is gone, or the drill was cancelled, while the rank was waiting for it.",
    remedy=_AGAIN,
)
SPARE_LATE = Message(
    "US4648",
    "the spare did not reach this step within {seconds:g} s",
    cause="The spare needs longer to receive its copy of the state than the rank waits at its vote.",
    remedy=f"{_AGAIN} The network between both nodes, or the node of the spare, may be slow.",
)
INTERRUPTED = Message(
    "US4649",
    "the step was interrupted: {error}",
    cause="A loss, or an exception in the script, came in the middle of the drilled step.",
    remedy=_AGAIN,
)
TOO_SLOW = Message(
    "US4650",
    "the spare receives data too slowly",
    cause="The results of collectives are sent more slowly than the rank produces them, and a drill must not delay training.",
    remedy="Drill again with fewer bytes (--drill-bytes).",
)
NOT_RECORDED = Message(
    "US4651",
    "a collective could not be recorded: {error!r}",
    cause="The rank could not copy the result of a collective.",
    remedy=f"{_AGAIN} Report it if it repeats.",
)
STATE_CHANGED = Message(
    "US4652",
    "its state changed before all of it was sent",
    cause="The rank continued with its step before the spare had all of its state.",
    remedy=_AGAIN,
)
BROKEN_OFF = Message(
    "US4660",
    "rank {rank} ended the drill: {error}",
    cause="The connection from the rank to the spare ended in the middle of the drill.",
    remedy=_AGAIN,
)
OTHER_STATE = Message(
    "US4661",
    "{error}. Registered state must be the same again after load_state_dict, and nothing else may change it before a newcomer reaches the "
    "step",
    cause="The spare loaded the state of the rank, and its own state then differs from it. A newcomer would fail in the same way.",
    remedy="Make state_dict and load_state_dict of registered objects exact, and change registered state in steps only.",
)
SAVES = Message(
    "US4662",
    "compared up to the point where the step saves (torch.save), because only the rank itself may save. Save in a @job.section, and the "
    "rest of the step is compared, too",
    cause="The spare must not write a file that the rank writes, so the comparison ends there.",
    remedy="Save in a @job.section to have the whole step compared.",
)
RAISES = Message(
    "US4663",
    "the step raises {kind} on the spare: {error}",
    cause="The step raised an exception on the spare, and not on the rank.",
    remedy="Fix the cause of the exception: the step uses something that a newcomer does not have.",
)
FEEDS = Message(
    "US4664",
    "{what}. The step depends on something that a newcomer does not have in the same state as the rank (a plain name, a closure, an object "
    "of the script): pass it to job.register, or keep it in a registered module",
    cause="The spare computed a different result than the rank from the same registered state.",
    remedy="Find what else the step uses, and register it (job.register, job.state).",
)
VALUES = Message(
    "US4665",
    f"{{what}}. {_VALUES}",
    cause="Only registered values differ. They are derived from something that is not registered or from a clock, or they change after the "
    "vote.",
    remedy="Register what the value is derived from, leave clocks out of its state_dict, and change it before optimizer.step.",
)
REDO_DIFFERS = Message(
    "US4666",
    "the spare's first attempt equals the rank's, but its redo does not: {what}. The step changes something that a redo does not restore "
    "(a list, a counter, a cache, its batch): pass it to job.register, or change it after the step",
    cause="After a loss, survivors redo the step. Here the second attempt gave different bits than the first one.",
    remedy="Register what the step changes, or change it after the step.",
)
UNSTEADY = Message(
    "US4667",
    f"{_UNSTEADY}Pass it to job.register; if the step uses no such object, make the device compute reproducibly "
    "(torch.use_deterministic_algorithms)",
    cause="The spare computed the step twice from the same state, with different bits.",
    remedy="Register counters and generators that the step uses, or use torch.use_deterministic_algorithms.",
)
OF_NO_CONSEQUENCE = Message(
    "US4668",
    "differs, without consequence in this step: {what}",
    cause="Something differs on the spare that did not affect the drilled step. It may affect another step.",
    remedy="Register it if the script uses it.",
)
VALUES_UNSTEADY = Message(
    "US4669",
    f"{_UNSTEADY}{_VALUES}",
    cause="The spare computed the step twice from the same state, and only registered values differ.",
    remedy="Register what the value is derived from, leave clocks out of its state_dict, and change it before optimizer.step.",
)
