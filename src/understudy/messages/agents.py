"""Messages of agents: their connection to the orchestrator, the workers that they start, and the output that they pass on."""

from __future__ import annotations

from understudy.messages.base import Message

CONNECTED = Message(
    "US5700",
    "connected to the orchestrator",
    cause="The connection that was lost, or could not be made, is established.",
)

DISCONNECTED = Message(
    "US5701",
    "no connection to the orchestrator ({reason}); training continues, retrying",
    cause="The orchestrator is not running, or the network to it is down.",
    remedy="Check that the orchestrator is running, and that this node reaches its address.",
)

REFUSED = Message(
    "US5702",
    "the orchestrator at {url} refused this node ({reason}). Is this the token of that job (--token-file, UNDERSTUDY_TOKEN), and is "
    "--node-rank free?",
    cause="The orchestrator does not accept this node's secret, does not know its job, or has another node with the same number.",
    remedy="Give every node the same secret, and each node its own --node-rank.",
)

NOT_AN_ADDRESS = Message(
    "US5703",
    "{url} is not the address of an orchestrator",
    cause="The address is not a URL that can be connected to.",
    remedy="Correct the address.",
)

UNTRUSTED = Message(
    "US5704",
    "the certificate of {url} is not trusted: {reason}",
    cause="The certificate of the orchestrator is not signed by the certificate or authority in --tls or --tls-cert on this node.",
    remedy="Give this node the orchestrator's certificate, or its authority's.",
)

OUTPUT_DROPPED = Message(
    "US5705",
    "{count} characters of output were dropped: the orchestrator did not receive them in time",
    cause="The workers print faster than the connection to the orchestrator can carry, or it was interrupted.",
    remedy="Print less, or read workers/*.log on the node, which has the complete output.",
)

NOT_A_MESSAGE = Message(
    "US5706",
    "the orchestrator sent something that is not a message: {reason}",
    cause="Agent and orchestrator have different versions. The data is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_FOR_NODE = Message(
    "US5707",
    "ignored {type} from the orchestrator: it is not for this node",
    cause="Agent and orchestrator have different versions, or the orchestrator has confused two nodes.",
    remedy="Install the same version of Understudy on all hosts.",
)

LED_ONCE = Message(
    "US5708",
    "it no longer leads: its fence is {old}, and another orchestrator has fence {new}",
    cause="Each leader has a greater number, the fence, than the leader before it. The agent reached an orchestrator that has been "
    "replaced, and is looking for the current leader.",
)

JOB_LOST_US = Message(
    "US5710",
    "no orchestrator for {away:.0f} s, and no worker of {node} has made progress for {still:.0f} s: they are ended, because the job has "
    "continued without them, or is over",
    cause="The node was cut off from the rest of the job.",
    remedy="Check the network of this node.",
)

COMMAND_LINE_ENDED = Message(
    "US5711",
    "`understudy run` has ended on this node",
    cause="Its process ended, so the agent of this node ends the workers.",
    remedy="Find out what killed it if it was not ended on purpose: often it is the kernel's OOM killer.",
)

EXIT_HANDLERS = Message(
    "US5712",
    "waiting for the exit handlers of {workers} (at most {seconds:g} s)",
    cause="The scripts of these workers have ended, but their processes have not.",
)

CUT_OFF = Message(
    "US5713",
    "all ranks finished, but processes did not end cleanly after that: {how}",
    cause="Every script had ended. After that a process was killed, crashed, or ended with a different exit code, in a thread, an exit "
    "handler or a finalizer. Data that it had not written by then is lost.",
    remedy="Read the last output of these ranks. The training itself is complete; check files that are written at the end.",
)
FAILED_LIKE_THAT = Message(
    "US5714",
    "{ranks}: the same error",
    cause="These ranks failed with the first error of the job, at the same line. That error is reported last.",
)
FAILED_ALSO = Message(
    "US5715",
    "{ranks} failed as well: {error}",
    cause="These ranks failed, too. The first error of the job is reported last.",
    remedy="Read the first error: others often follow from it.",
)
NODE_REFUSED = Message(
    "US5709",
    "the orchestrator at {url} refused this node: {reason}",
    cause="The orchestrator accepts this job's token, but not this node.",
    remedy="Fix the cause that the message gives: usually with another --node-rank, or the same --nproc-per-node on all nodes.",
)
TEMPLATE_ENDED = Message(
    "US5720",
    "the process from which workers are forked ended with exit code {status}: {words}",
    cause="The process that imports torch once for all workers failed. Its last output is shown.",
    remedy="Correct what it names: often torch, or a package that the script imports, cannot be imported on this node.",
)

TEMPLATE_KILLED = Message(
    "US5721",
    "the process from which workers are forked was killed repeatedly",
    cause="The process that imports torch once for all workers is killed whenever it is started, often by the kernel's OOM killer.",
    remedy="Check the kernel log and the memory of the node or its control group.",
)

AGENT_ENDING = Message(
    "US5722",
    "the agent ends",
    cause="A worker was to be started while the agent was ending.",
)

CANNOT_START = Message(
    "US5723",
    "cannot start it: {reason}",
    cause="The process of a worker could not be started on this node.",
    remedy="Fix the cause that the message gives.",
)

NO_ROOM_FOR_SPARE = Message(
    "US5724",
    "no memory for a spare: it needs {needed}, and {reserve} are kept in reserve; {free} of {total} are free ({limited_by})",
    cause="The memory of the node, or of the control group that limits it, is not sufficient for one more worker.",
    remedy="Start the job with fewer spares, or give the node or control group more memory.",
)

KERNEL_TOO_OLD = Message(
    "US5725",
    "prctl(PR_SET_CHILD_SUBREAPER) failed: this kernel is too old",
    cause="The kernel does not let a process adopt its orphaned descendants. Then workers might be left running.",
    remedy="Use Linux 5.3 or newer.",
)

NO_RECEPTION = Message(
    "US5726",
    "workers could not find a restarted agent, and would end with this one: {reason}",
    cause="The socket by which workers find the next agent could not be made in the run directory.",
    remedy="Fix the cause that the message gives: the disk may be full, or its file system may not support sockets.",
)

UNMET = Message(
    "US5730",
    "{worker} did not answer the restarted agent of {node}: killed",
    cause="The worker did not reconnect to the new agent in time, so it could no longer be controlled.",
    remedy="Look for code in the worker that holds Python's global interpreter lock, if it happens again. A spare takes over its rank.",
)

WROTE_TO_OUR_SOCKET = Message(
    "US5731",
    "{worker} wrote to Understudy's own socket: {reason}. The data was ignored",
    cause="The script, or a library in it, writes to a descriptor that it did not open.",
    remedy="Find out what writes to descriptors by number in the script.",
)

CLOSED_OUR_SOCKET = Message(
    "US5732",
    "{worker} closed its connection to the agent (does the script close all descriptors?): killed",
    cause="The script closed descriptors that it did not open, and without the connection the worker cannot be controlled.",
    remedy="Do not close all descriptors in the script; os.closerange and daemonizing do that.",
)

ENDED_MEANWHILE = Message(
    "US5733",
    "it ended while no agent was running on {node}{where}",
    cause="The worker ended after one agent had ended and before the next one started, so its exit status is not known.",
    remedy="Read the worker's log in the run directory.",
)

SIGNAL_KEPT = Message(
    "US5734",
    "{signal} is not forwarded to {ranks}: the script has no handler for it, and would end",
    cause="The signal was to be forwarded to the script, for example as a notice of a time limit, and the script has not installed a "
    "handler.",
    remedy="Install a handler in the script, or let the signal end the job with --signals-to-handle.",
)

OUTPUT_STALLED = Message(
    "US5735",
    "{count} bytes of workers' output were dropped: {way} did not accept them in time",
    cause="The terminal, pipe or disk to which the output goes is too slow or blocked.",
    remedy="Check the program that reads the output of `understudy run`, and the disk.",
)

LOG_UNWRITTEN = Message(
    "US5736",
    "cannot write {path}: {reason}. Training continues; output is not kept there from now on",
    cause="The disk for the workers' logs is full or cannot be written.",
    remedy="Free space on the disk.",
)

CHECK_IMPOSSIBLE = Message(
    "US5740",
    "the check cannot run: {reason}",
    cause="The check of the node could not be started.",
    remedy="Fix the cause that the message gives, and run the check again with `understudy undrain`.",
)

CHECK_TOO_LONG = Message(
    "US5741",
    "it takes longer than {seconds:g} s",
    cause="The check of the node did not end in time, so the node counts as failed.",
    remedy="Run `understudy check-node` on the node to see which check does not end.",
)

CHECK_WITHOUT_REPORT = Message(
    "US5742",
    "it ended with exit code {code} and no report",
    cause="The process that checks the node failed.",
    remedy="Run `understudy check-node` on the node to see why.",
)

CHECK_CONTRADICTS = Message(
    "US5743",
    "its report and its exit code {code} contradict each other",
    cause="The process that checks the node reported that the node passes, but failed, or the other way round.",
    remedy="Run `understudy check-node` on the node.",
)

CHECK_TRIED_NOTHING = Message(
    "US5744",
    "no check could run",
    cause="None of the checks could be run on the node.",
    remedy="Run `understudy check-node` on the node to see what is missing.",
)

DETECTORS_LOOK = Message(
    "US5750",
    "node {node}: {detectors} for faults",
    cause="The detectors of this node have started.",
)

LOOK_TOO_LONG = Message(
    "US5751",
    "a run takes longer than {seconds:g} s",
    cause="The detector did not complete a run within its limit.",
    remedy="Make the detector do less in one run, or raise its limit.",
)

NOT_PROVEN = Message(
    "US5769",
    "it did not prove that it knows the token, although the orchestrator had done so before",
    cause="Another program answers at the orchestrator's address: another orchestrator, or one of an earlier version.",
    remedy="Wait until the orchestrator is back. If it was replaced by an earlier version, restart this agent.",
)

NO_ANSWER = Message(
    "US5759",
    "{device} has not answered the detector {detector} for {seconds:g} s",
    cause="A driver call about this device does not return, which happens with a failed device.",
    remedy="Check the device with its vendor's tool, and the kernel log. The node may need a reset.",
)

NOT_OF_NODE = Message(
    "US5752",
    "{evidence}: a node's detector may only report about that node and its parts, with severity note or suspect",
    cause="The detector returned evidence about another subject, or with a severity that only an orchestrator's detector may use.",
    remedy="Return evidence about a node, device or link, with the severity note or suspect.",
)

PART_UNSTARTED = Message(
    "US5760",
    "job {job}: its agent on this node cannot be started: {reason}",
    cause="In a service, each job has its own agent on a node, which manages the job's workers there. The agent of the node could not "
    "start it.",
    remedy="Fix the cause that the message gives: the job's folder may be missing on this node.",
)

PART_STARTED = Message(
    "US5761",
    "job {job}: node rank {node_rank}, {slots} slots, {spares} of them for spares",
    cause="A job was assigned slots on this node.",
)

PART_ENDED = Message(
    "US5762",
    "job {job}: its agent on this node has ended",
    cause="The job is over, or has left this node.",
)

PART_KILLED_OFTEN = Message(
    "US5763",
    "job {job}: its agent on this node was killed {times}",
    cause="The job's agent, which manages its workers on this node, was restarted each time, and is now given up.",
    remedy="Find out what kills it: often it is the kernel's OOM killer.",
)

PART_NOT_RESTARTED = Message(
    "US5764",
    "job {job}: its agent on this node was killed, and cannot be restarted: {reason}",
    cause="The job's agent, which manages its workers on this node, was killed, and restarting it failed.",
    remedy="Fix the cause that the message gives.",
)

PART_RESTARTED = Message(
    "US5765",
    "job {job}: its agent on this node was killed; training continues, and the agent is restarted",
    cause="The job's agent, which manages its workers on this node, was killed. The workers continue, and the next agent takes control "
    "of them.",
    remedy="Find out what kills it if it happens again.",
)

PART_TAKEN_UP = Message(
    "US5766",
    "job {job}: its agent on this node is still running, and is managed again",
    cause="The agent of the node was restarted, and the job's own agent has continued in the meantime.",
)

PART_RESTARTED_WITH_AGENT = Message(
    "US5767",
    "job {job}: its agent on this node was killed, but its workers are still running: the agent is restarted",
    cause="The agent of the node was restarted, and found workers of the job without the job's own agent.",
)

NOT_FOR_A_NODE = Message(
    "US5768",
    "ignored {type} from the orchestrator: it is not for a node",
    cause="Agent and orchestrator have different versions.",
    remedy="Install the same version of Understudy on all hosts.",
)

FINISHED_UNLED = Message(
    "US5790",
    "all {ranks} ranks finished; no orchestrator could be started to record that in the journal",
    cause="The job's journal is damaged, so its orchestrator could not be started, and the ranks have finished without it.",
    remedy="The results are complete. Check the disk of the run directory.",
)

FAILED_UNLED = Message(
    "US5791",
    "the script of {worker} failed, and no orchestrator could be started: the job ends",
    cause="The job's journal is damaged, so its orchestrator could not be started, and a rank's script raised an exception.",
    remedy="Read the exception above, and check the disk of the run directory.",
)
