"""The exit codes of all commands: one table, shown by the help of each command and by docs/reference/exit-codes.md.

A command that is not in `OF` ends with the codes of `COMMON`. `tests/project/test_exit_codes.py` compares the table with the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.common.names import UNUSABLE

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
DIFFERS, REFUSED_SCRIPT, SCRIPT_FAILED, INCONCLUSIVE = 3, 4, 5, 6  # of `run --check`
NOT_REPRODUCIBLE, NO_VERDICT = 4, 5  # of `drill --wait`
LATE, REFUSED = 3, 4  # of `drain` and `undrain`
NOT_SURVIVABLE = 3  # of `drill --wait`, and of a job with --require-drill, where `core.drill` has it
TERMINATED = 143  # of a job that `stop` or `cancel` ends

Codes = Mapping[int | str, str]

COMMON: Codes = {
    DONE: "success",
    FAILED: "the orchestrator did not respond, or refused the request",
    USAGE: "the options, a file or a folder cannot be used",
    INTERRUPTED: "ended by Ctrl-C while it waited",
}
JOB: Codes = {
    DONE: "the script ended with 0 on every rank",
    "N": "the script called `sys.exit(N)`, or its exit handlers ended with N; only the lowest eight bits count",
    FAILED: "the script raised an exception, or the job cannot continue: the message gives the reason",
    USAGE: "the options cannot be used; nothing was started",
    NOT_SURVIVABLE: "with `--require-drill`: a drill found that the job would not survive the loss of a rank, "
    "or that the step is not reproducible",
    "128 + N": "ended by signal N: 130 after Ctrl-C, 143 after SIGTERM",
    TERMINATED: "ended by `understudy stop` or `cancel`; `stop --exit-code` changes it",
}
CHECK: Codes = {
    DONE: "the steps after the kills are bitwise identical to those of the undisturbed run",
    USAGE: "the options cannot be used",
    DIFFERS: "the steps after a kill differ",
    REFUSED_SCRIPT: "the script was refused, the job did not survive a kill, or a drill found a difference",
    SCRIPT_FAILED: "the script fails without a kill",
    INCONCLUSIVE: "inconclusive; the report gives the reason",
    INTERRUPTED: "ended by Ctrl-C",
}
OF: Mapping[str, Codes] = {
    "run": JOB,
    "run --check": CHECK,
    "logs --follow": {
        "N": "the job ended with N",
        FAILED: "the job ended with 1, or the orchestrator did not respond",
        USAGE: COMMON[USAGE],
        INTERRUPTED: "ended by Ctrl-C; the job continues",
    },
    "drill --wait": {
        DONE: "the drill passed, or partly passed (verdict `same` or `partly`)",
        FAILED: COMMON[FAILED],
        USAGE: COMMON[USAGE],
        NOT_SURVIVABLE: "the spare computed a different result: the job would not survive the loss of the rank",
        NOT_REPRODUCIBLE: "the step is not reproducible on this device",
        NO_VERDICT: "no verdict: try again",
    },
    "drain": {
        DONE: "the nodes are empty (without `--wait`: the drain was accepted)",
        FAILED: "the orchestrator did not respond",
        USAGE: COMMON[USAGE],
        LATE: "the deadline has passed and ranks are left there",
        REFUSED: "refused because a job needs the nodes; nothing has changed",
        INTERRUPTED: "Ctrl-C; the drain continues",
    },
    "undrain": {
        DONE: "the nodes are used again",
        FAILED: "the orchestrator did not respond",
        USAGE: COMMON[USAGE],
        REFUSED: "one of the nodes is not drained; those before it on the command line are used again",
    },
    "chaos": {
        DONE: "all outcomes were as expected",
        FAILED: "an outcome was not as expected, or the orchestrator did not respond",
        USAGE: "the plan or an option cannot be used",
        INTERRUPTED: "ended by Ctrl-C",
    },
    "doctor": {DONE: "a job can run here", FAILED: "no job can run here"},
    "detectors": {
        DONE: "the file can be used",
        FAILED: "with `--once`: a detector found something suspect",
        USAGE: "the file cannot be used; every mistake is reported with its location",
    },
    "check-node": {
        DONE: "the node passed",
        FAILED: "a check failed, or none could run",
        USAGE: "the options cannot be used",
        INTERRUPTED: "ended by Ctrl-C",
    },
    "policy check": {DONE: "the policy can be used", USAGE: "it cannot be used; every mistake is reported with its location"},
    "journal verify": {DONE: "all of it can be used", FAILED: "some of it is damaged", USAGE: "there is no journal"},
    "journal backup": {DONE: "copied", FAILED: "copied, but the journal is damaged, and so is the copy", USAGE: "nothing was copied"},
    "journal restore": {DONE: "restored", USAGE: "nothing was changed"},
    "network plan": {DONE: "success", FAILED: "the kernel refused a query", USAGE: COMMON[USAGE]},
    "network apply": {
        DONE: "success",
        FAILED: "the kernel refused a change; what was done is undone",
        USAGE: f"{COMMON[USAGE]}; nothing has changed",
    },
    "network undo": {
        DONE: "success",
        FAILED: "the kernel refused a change; run it again",
        USAGE: "there is nothing to undo, or the record cannot be used",
    },
    "network rails": {DONE: "ended by a signal", FAILED: "the kernel refused a query", USAGE: COMMON[USAGE]},
    "network status": {
        DONE: "all next hops are in use",
        FAILED: "a next hop is withdrawn, a peer answers on no rail, or the rail agent does not run",
        USAGE: "there is no state",
    },
    "network build": {DONE: "the plugin is there", USAGE: "it cannot be built"},
    "network env": {DONE: "success", USAGE: "the plugin has not been built"},
    "agent": {DONE: "ended by a signal", FAILED: "the orchestrator refused this node", USAGE: COMMON[USAGE]},
    "orchestrator": {
        DONE: "ended by a signal",
        FAILED: "the server failed",
        UNUSABLE: "it cannot serve: the folder, the journal, the address or the secret cannot be used",
    },
}


def epilog(*commands: str) -> str:
    """Return the exit codes of `commands` as the last paragraph of a command's help."""
    return "\n\n".join(map(_of, commands))


def _of(command: str) -> str:
    _, _, option = command.partition(" --")
    codes = "; ".join(f"{code} ({text})" for code, text in OF[command].items())
    return f"Exit code{f' with --{option}' if option else ''}: {codes}.".replace("`", "")
