"""Messages of `understudy run --check`: its verdicts, what led to them, and what to change in the script."""

from __future__ import annotations

from understudy.messages.base import Message

CHECK_ON_ONE_MACHINE = Message(
    "US2500",
    "--check works on one machine only: leave out --nnodes and --orchestrator, and use as many ranks as fit here",
    cause="The check starts, pauses and kills processes of the job, which it can do on its own machine only.",
    remedy="Leave out --nnodes and --orchestrator.",
)

CHECK_NEEDS_SPARES = Message(
    "US2501",
    "--check uses up a spare for each drill: leave out --no-replenish",
    cause="Without new spares there would be none for the kill after the drills.",
    remedy="Leave out --no-replenish.",
)

CHECK_TOO_SHORT = Message(
    "US2502",
    "--check-steps {steps}: drills need at least {least} steps before the kill",
    cause="The steps before the kill are too few to drill a rank in them.",
    remedy="Give a larger --check-steps.",
)

NO_SUCH_PHASE = Message(
    "US2504",
    "--kills {given}: give some of {known}, each once, separated by commas",
    cause="--kills names the phases of a step in which the check kills a rank, and one of the names is unknown or given twice.",
    remedy="Leave out --kills to test all phases, or name some of them.",
)

CHECK_NEEDS_RANKS = Message(
    "US2503",
    "--check needs at least 2 ranks: a single rank has no replica, and no other rank to keep its copies (--nproc-per-node 2)",
    cause="The check kills a rank, and a spare takes its state from another one. With one rank there is no other.",
    remedy="Give --nproc-per-node 2 or more.",
)

CALLED_OFF = Message(
    "US2505",
    "the check is cancelled",
    cause="The check was interrupted. It has left nothing running.",
)

RECOVERY_BEGINS = Message(
    "US2506",
    "the same run with a spare: drills from step {first} on, kills in steps {kills}, until step {last}. A spare becomes warm before each",
    cause="The undisturbed run is done, and the disturbed run begins.",
)

REFERENCE_AGAIN = Message(
    "US2507",
    "the values that differ are not registered, and may depend on a clock: running undisturbed once more, to see whether they are "
    "reproducible",
    cause="Only values that the script has not registered differ between the two runs. A third, undisturbed run shows whether they differ "
    "by themselves.",
)

REFERENCE_BEGINS = Message(
    "US2508",
    "{ranks} ranks, {steps} steps, undisturbed; output in {path}",
    cause="The check begins with an undisturbed run as the reference.",
)

STANDSTILL = Message(
    "US2509",
    "there was no progress for {seconds:.0f} s (--setup-limit) while the check waited for {what}",
    cause="Neither a step nor the state of a rank or spare has changed for the time that --setup-limit allows.",
    remedy="Read the output of the run to see where the script waits. If its setup takes longer, raise --setup-limit.",
)

BITWISE = Message(
    "US2510",
    "{kills}, and recovered in {seconds} at most; the {steps} steps after the first kill are bitwise identical on {ranks} ranks ({digests} "
    "digests)",
    cause="Everything that was recorded after the kill is the same as in the undisturbed run.",
)

BITWISE_BUT_NAMED = Message(
    "US2511",
    "{kills}, and recovered in {seconds} at most; the {steps} steps after the first kill are bitwise identical on {ranks} ranks ({digests} "
    "digests); but a drill found rank {drilled} {verdict}",
    cause="The recovery was bitwise identical, but a drill before it found state that a newcomer would not have.",
    remedy="Follow the remedy of the drill, and check again.",
)

DIFFERS = Message(
    "US2512",
    "{kills}, and the training differs after it: {difference}",
    cause="The training of the newcomer differs from that of the rank that was killed: state that a step depends on is not registered.",
    remedy="Register the state that the drills and notices name, or the state from which the differing value is computed, and check again.",
)

HELD = Message(
    "US2513",
    "{kills}, and the job is paused: {reason}",
    cause="After the recovery the ranks did not agree, and the job was paused instead of continuing with wrong state.",
    remedy="Register what the message names, and check again.",
)

NOT_SURVIVED = Message(
    "US2514",
    "{kills}, and the job did not survive it",
    cause="The job ended instead of recovering. The message in the report gives the reason.",
    remedy="Follow the message, and check again.",
)

IRREPRODUCIBLE = Message(
    "US2515",
    "the script is not reproducible: {difference}, before the kill",
    cause="Two runs differ before anything was disturbed, so a comparison after the kill would show nothing.",
    remedy="Seed all random numbers, do not depend on the clock, and do not start from a snapshot that the previous run saved.",
)

RECORDS_DIFFER = Message(
    "US2516",
    "{kills}, and {difference}",
    cause="The two runs have not recorded the same commits, so they cannot be compared.",
    remedy="Run the check again. If it happens again, the two runs of the script do not have the same steps.",
)

OTHERWISE_DISTURBED = Message(
    "US2517",
    "{kills}, and something else happened: {incidents} incidents instead of {wanted}",
    cause="Another rank was lost during the check, for a reason outside the check.",
    remedy="Check the run directory of the recovery with `understudy report`, and run the check again.",
)

STEPS_UNRECORDED = Message(
    "US2518",
    "{kills}, and nothing was recorded for steps {steps}",
    cause="For these steps after the kill no digests were recorded, so nothing is known about them.",
    remedy="Run the check again.",
)

REFUSED = Message(
    "US2520",
    "Understudy refuses to run this script without changes (rank {rank}, with {step} steps committed)",
    cause="Understudy ended the script because of something that the script does. The message in the report names it.",
    remedy="Follow the message, and check again.",
)

SCRIPT_FAILS = Message(
    "US2521",
    "the script fails on its own (rank {rank}, with {step} steps committed)",
    cause="The script has raised an exception before anything was disturbed.",
    remedy="Fix the script. Its output is in the folder of the run.",
)

SCRIPT_STANDS = Message(
    "US2522",
    "the script makes no progress",
    cause="The script made no progress for longer than --setup-limit, or the job is paused.",
    remedy="Read the message in the report and the output of the run.",
)

JOB_FAILED = Message(
    "US2523",
    "the job ended with exit code {code}, with {steps} steps committed",
    cause="The job has failed before anything was disturbed.",
    remedy="Read the output of the run.",
)

NO_STEP = Message(
    "US2524",
    "the script ended without committing a step",
    cause="Not a single step was committed: the script does not use Understudy, or ends before its training loop.",
    remedy="Call understudy.join(), and mark the training step with @job.step.",
)

TOO_FEW_STEPS = Message(
    "US2525",
    "the script ended by itself after {steps} steps, and the check needs {needed}",
    cause="The script trains for fewer steps than the check needs.",
    remedy="Let the script train longer, or lower --check-steps.",
)

NOT_REACHED = Message(
    "US2526",
    "no rank was killed in the phase {phase}: the script did not reach it in step {step}",
    cause="The check waits until a rank is in this phase of a step, and the step was over before the rank reached it.",
    remedy="Ignore this if the script has no such phase, for example a step without a backward pass. Otherwise use another --check-steps.",
)

NO_KILL = Message(
    "US2527",
    "no rank was killed: the script reached none of the phases",
    cause="The check waits until a rank is in each phase of --kills, and each step was over before the rank reached it.",
    remedy="Leave out --kills, so that a rank is also killed at its vote.",
)

OTHER_KILLS = Message(
    "US2552",
    "Leave out --kills: every step has a vote",
    cause="The script reached none of the phases that --kills names.",
)

UNDRILLED = Message(
    "US2530",
    "rank {rank} has a role that was not drilled: there were too few steps (--check-steps)",
    cause="There are more roles than steps before the kill, and each drill needs a step.",
    remedy="Raise --check-steps.",
)

VALUE_DIFFERS = Message(
    "US2531",
    "rank {rank}, step {step}: {entry} differs{values}",
    cause="After this step, the rank held a different value, or returned a different result, in the run with the kill than in the "
    "undisturbed run.",
    remedy="Look for unregistered state from which the value is computed.",
)

RECORDED_ONCE = Message(
    "US2532",
    "rank {rank} reported transaction {transaction} in only one of the two runs ({run})",
    cause="The two runs did not execute the same transactions, so they cannot be compared there.",
    remedy="Let the script run the same steps each time, or run the check again.",
)

RECORDED_OTHERWISE = Message(
    "US2533",
    "rank {rank}, transaction {transaction}: {there} in the undisturbed run, and {here} in this one",
    cause="The transaction is a different step or section in the two runs.",
    remedy="Let the script run the same transactions in the same order each time.",
)

REGISTER_STATE = Message(
    "US2540",
    "Unregistered state that a step depends on has its initial value on a newcomer. Look for it in the inputs of the entry that is "
    "named above: counters, averages, generators, iterators, caches. Pass it to job.register, or keep it in job.state(...)",
    cause="The recovery differs, usually because state is not registered.",
    remedy="Register the state, and check again.",
)

FOLLOW_NOTICES = Message(
    "US2541",
    "Each notice above names the change to make",
    cause="The runtime printed notices about the script, which the report shows.",
    remedy="Follow the notices, and check again.",
)

FOLLOW_MESSAGE = Message(
    "US2542",
    "Follow the message above, and check again",
    cause="The report shows a message that names the change to make.",
)

FOLLOW_DRILL = Message(
    "US2543",
    "Follow the remedy of the drill, and check again",
    cause="A drill found a difference, which the report shows.",
)

MEND_SCRIPT = Message(
    "US2544",
    "Fix the script: it does not run to the end of the check even without a disturbance. Its last output is in {output}",
    cause="The script failed before anything was disturbed.",
)

MORE_STEPS = Message(
    "US2545",
    "Let the script train for more steps (by its own argument), or let the check use fewer (--check-steps)",
    cause="The script ended before the last step that the check needs.",
)

NO_STEPS_SEEN = Message(
    "US2546",
    "The check requires steps: does the script call understudy.join(), and is its training step a @job.step (docs/script/index.md)?",
    cause="The script ended without a committed step.",
)

SEED = Message(
    "US2547",
    "Two undisturbed runs must compute the same: seed all random numbers, do not depend on the clock, and do not start from a snapshot "
    "that the previous run saved",
    cause="Two undisturbed runs of the script computed different results.",
)

READ_OF_FIRST = Message(
    "US2553",
    "the second run read {files}, which the first had written: it resumed from there, so the two runs cannot be compared",
    cause="The script looks for a snapshot, or another file, that it writes itself. The two runs of a check work in the same folder.",
    remedy="Add an option to start without resuming, or write to a new folder in each run.",
)
READ = Message(
    "US2554",
    "{file}: written by the first run and read by the second",
    cause="Part of the report of a check: files that carried state from the first run into the second.",
)
FOLDER_OF_ITS_OWN = Message(
    "US2555",
    "Start the script from scratch in each run: disable its option to resume, or write its files to a new folder in each run "
    "(UNDERSTUDY_RUN_DIR differs between runs)",
    cause="The second run of the check resumed from a file that the first had saved.",
)
LOOK_AT_OUTPUT = Message(
    "US2548",
    "See {output}. A setup that takes longer needs a longer --setup-limit",
    cause="The script made no progress for longer than --setup-limit.",
)

CHECK_AGAIN = Message(
    "US2549",
    "The run was disturbed by something other than the check: run the check again",
    cause="The run cannot be judged, because something other than the check disturbed it.",
)

NOTHING_TO_CHANGE = Message(
    "US2550",
    "Nothing. Code that begins after step {last}, such as another phase or an evaluation, was not checked: raise --check-steps to cover it",
    cause="The recovery was bitwise identical, for as many steps as the check covers.",
)
