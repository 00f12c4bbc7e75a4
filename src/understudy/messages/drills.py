"""Drills of a job, their results, and spares that are prepared for a rank."""

from __future__ import annotations

from understudy.messages.base import Message

_SPARE = "spare {spare} on node {node}"
_SEE_SPARE = "Read the spare's output in the run directory."

NO_DRILL = Message(
    "US4280",
    "rank {rank} cannot be drilled now: {why}",
    cause="A drill of this rank was requested, and is not possible now.",
    remedy="Request the drill again when the reason in the message no longer applies.",
)
NO_DRILL_OF_ANY = Message(
    "US4281",
    "no rank can be drilled now: {why}",
    cause="A drill was requested, and is not possible now.",
    remedy="Request the drill again when the reason in the message no longer applies.",
)
UNDER_WAY = Message(
    "US4282",
    "a drill of rank {rank} is under way",
    cause="Only one drill runs at a time.",
    remedy="Try again when it is over.",
)
NOT_REPLACED = Message(
    "US4283",
    "a drill uses up its spare, and this job does not replace spares",
    cause="The spare of a drill has run the script as a rank and cannot be used again, and the job was started with --no-replenish.",
    remedy="Start the job without --no-replenish to allow drills.",
)
BEGINS = Message(
    "US4284",
    f"drill {{number}}: {_SPARE} will compute a step of rank {{rank}} in parallel with it",
    cause="A drill was due or requested. The spare computes the next step of this rank in parallel; training does not depend on it.",
)
FINISHED_AND_GONE = Message(
    "US4290",
    "the rank has finished",
    cause="The script of the drilled rank had ended before the spare was ready.",
)
COULD_NOT_COME = Message(
    "US4291",
    "the spare could not reach the step: {why}. Everything that the script does up to its first step must be possible a second time, on "
    "another worker, while the job runs",
    cause="The script raised an exception on the spare before its first step. A newcomer after a loss would fail in the same way.",
    remedy="Fix what cannot be done twice: a lock, a port, a folder that must not exist, a file that only one process may open.",
)
DRILL_SPARE_LOST = Message(
    "US4292",
    "the spare was lost: {why}",
    cause="The process of the spare ended during the drill. The drill has no verdict.",
    remedy=_SEE_SPARE,
)
NOT_READY = Message(
    "US4293",
    "the spare was not ready within {seconds:g} s",
    cause="The spare did not complete the setup of the script within --setup-limit.",
    remedy=f"{_SEE_SPARE} Raise --setup-limit if the setup needs that long.",
)
NOTHING_CAME = Message(
    "US4294",
    "the spare was ready, but reported no result within {seconds:g} s",
    cause="The spare was ready and did not report a verdict in time.",
    remedy=_SEE_SPARE,
)
DRILL_CALLED_OFF = Message(
    "US4295",
    "cancelled: {why}",
    cause="Something more important came first: a loss, a migration, a drain or the end of the job. The drill has no verdict.",
)
SAME = Message(
    "US4300",
    "drill {number} of rank {rank} passed at step {step}: spare {spare} computed the same bits in both of its attempts{more}",
    cause="A spare received the state of this rank and computed its step twice, with the same bits as the rank. The job survives a loss "
    "of this rank with a bitwise identical result.",
)
PARTLY = Message(
    "US4301",
    "drill {number} of rank {rank} partly passed at step {step}: the same bits in {collectives} collectives{left_out}{more}",
    cause="Up to the point where the comparison ended, the spare computed the same bits. The comparison ends where a limit is reached or "
    "the step saves.",
    remedy="Raise --drill-bytes to compare more, or save in a @job.section.",
)
NOT_SURVIVABLE = Message(
    "US4302",
    "drill {number}: the job would not survive the loss of rank {rank} (step {step}){more}",
    cause="The result of the spare differs from the rank's, so the result of a newcomer after a loss would differ, too. The detail says "
    "where the difference begins.",
    remedy="Register what the detail names (job.register, job.state), or remove it from the step. Then drill again.",
)
NOT_REPRODUCIBLE = Message(
    "US4303",
    "drill {number}: rank {rank} is not reproducible on this device (step {step}){more}",
    cause="Two attempts of the spare itself differ: the device does not compute reproducibly, or the step uses something "
    "unregistered that it changes itself, such as a counter or a generator.",
    remedy="Use torch.use_deterministic_algorithms, and register generators and counters that the step uses.",
)
NOT_PROVEN = Message(
    "US4304",
    "drill {number} of rank {rank} has no verdict{more}",
    cause="The drill ended without a verdict. This is not evidence against the rank.",
    remedy="Drill again: `understudy drill --rank RANK`.",
)
REQUIRED = Message(
    "US4305",
    "{result}. The job ends because of --require-drill",
    cause="The job was started with --require-drill, and a drill found that the job would not survive a loss of a rank.",
    remedy="Fix what the drill found, or start the job without --require-drill to continue anyway.",
)
TRY_AGAIN = Message(
    "US4306",
    "This is not evidence against the rank. Try again: understudy drill --rank {rank}",
    cause="The drill ended without a verdict.",
    remedy="Run the command that is given.",
)
UNPROVEN = Message(
    "US4310",
    "rank {rank} had not been drilled: no spare had computed one of its steps",
    cause="A rank was lost for which no drill has reached a verdict. This is not a fault.",
)
FOUND_OTHERWISE = Message(
    "US4311",
    'rank {rank} had not passed its last drill: drill {drill} of rank {of} had the verdict "{verdict}" at step {step}',
    cause="A rank was lost, and the last drill of this rank or of its role had found a difference.",
    remedy="Read the verdict of that drill (`understudy report`), and fix what it names.",
)
WAS_PROVEN = Message(
    "US4312",
    "{which} had passed a drill at step {step} (drill {drill})",
    cause="A rank was lost, and a drill of this rank or of its role had shown that a spare computes the same bits.",
)
WAS_PROVEN_PARTLY = Message(
    "US4313",
    "{which} had partly passed a drill at step {step} (drill {drill})",
    cause="A rank was lost, and a drill of this rank or of its role had compared part of a step, without a difference.",
)
PROOFS_VOID = Message(
    "US4314",
    "the registered state or its layout has changed: earlier drill results no longer hold",
    cause="The names of the registered state, the ranks that hold them, or the layouts of frameworks have changed. A verdict covers only "
    "the state that the drill observed.",
)
PROOFS_VOID_FOR = Message(
    "US4318",
    "{name}{more} started to change after the last drills: their results no longer hold",
    cause="The script changes something that it did not change when the drills ran. A verdict covers only what the drill observed.",
)
REDO_PROVEN = Message(
    "US4315",
    "the redo is proven by {who} had reached the vote before the loss, with the same bits",
    cause="Survivors had computed the interrupted step before the loss. Their redo gave the same bits, so the newcomer's contribution "
    "equals the lost rank's.",
)
KEPT = Message(
    "US4330",
    f"{_SPARE}, in the setup of rank {{rank}} for a drill, is kept as a prepared spare",
    cause="A loss cancelled a drill whose spare was in the setup of a rank. If that rank is lost, this spare takes it over.",
)
NOT_PREPARED = Message(
    "US4331",
    f"{_SPARE} could not be prepared for rank {{rank}}: {{why}}",
    cause="The script failed in the setup that a spare runs before a loss. Training is not affected; another spare is tried.",
    remedy="Fix what cannot be done twice: a lock, a port, a folder that must not exist. A newcomer after a loss would fail in the same "
    "way.",
)
NOT_PREPARED_ANY_MORE = Message(
    "US4332",
    f"{_SPARE} could not be prepared for rank {{rank}}; no other spare is prepared for this rank: {{why}}",
    cause="The setup that spares run before a loss failed twice for this rank, so it is not tried again.",
    remedy="Fix what cannot be done twice: a lock, a port, a folder that must not exist. A newcomer after a loss would fail in the same "
    "way.",
)
FAILED_IN_A_ROW = Message(
    "US4333",
    "{count} spares in a row could not be prepared: no more spares are prepared (see their output in the run directory)",
    cause="No spare completes the setup of the script while the job runs, for any rank.",
    remedy="Read the spares' output. Fix the setup, or start the job without --prepare.",
)
NOT_PREPARED_IN_TIME = Message(
    "US4334",
    "it was not ready within {seconds:g} s",
    cause="A spare did not complete the setup of a rank within --setup-limit.",
    remedy=f"{_SEE_SPARE} Raise --setup-limit if the setup needs that long.",
)
STARTED_OVER = Message(
    "US4335",
    f"{_SPARE}, prepared for rank {{rank}}, is restarted for another rank",
    cause="A rank needs a spare, and all warm spares are prepared for other ranks. One of them is ended, so that a new one can take over "
    "any rank.",
)
