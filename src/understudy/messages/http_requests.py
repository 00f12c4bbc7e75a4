"""Messages of the HTTP API: the `detail` of problems, and why a WebSocket is refused."""

from __future__ import annotations

from understudy.messages.base import Message

NOT_SERVED = Message(
    "US5200",
    "{detail}",
    cause="There is no such path or method, or the request cannot be read at all.",
    remedy="See docs/reference/http.md, or /openapi.json of the orchestrator.",
)

MALFORMED = Message(
    "US5201",
    "{problems}",
    cause="Values of the request do not have the form that the API requires. Each is listed with its location in the request.",
    remedy="Correct the values. docs/reference/http.md describes them.",
)

TOO_MANY_REQUESTS = Message(
    "US5202",
    "more than {rate:g} requests a second from this address",
    cause="A program at this address sends requests faster than the orchestrator answers any client.",
    remedy="Send requests less often; the header Retry-After gives the time of the next accepted request.",
)

TOO_LONG = Message(
    "US5203",
    "a request has at most {most} bytes",
    cause="The body of the request is longer than the orchestrator accepts. In a submitted job the largest part is usually its "
    "environment.",
    remedy="Send less.",
)

TOKEN_NEEDED = Message(
    "US5205",
    "a valid token is needed",
    cause="The request has no token, or one that the orchestrator did not issue.",
    remedy="Send the secret, or a token of `understudy token`, as `Authorization: Bearer TOKEN`. A change of the secret makes older "
    "tokens invalid.",
)

TOKEN_EXPIRED = Message(
    "US5206",
    "the token has expired",
    cause="The token was created with --days.",
    remedy="Make a new one with `understudy token`.",
)

ROLE_NEEDED = Message(
    "US5207",
    "this needs the role {role}",
    cause="The token or certificate does not allow this.",
    remedy="Use a token or certificate with this role: `understudy token --role`.",
)

ROLE_NEEDED_FOR_JOB = Message(
    "US5208",
    "this needs the role {role} for job {job}",
    cause="The token or certificate does not allow this for this job.",
    remedy="Use one with this role for this job, or for all jobs.",
)

ROLE_NEEDED_FOR_ALL = Message(
    "US5209",
    "this needs the role {role} for all jobs: the secret, or a token or certificate with this role that was made without --job",
    cause="The token or certificate is limited to one job, or does not allow this at all.",
    remedy="Ask a person who has such a token or certificate, or limit the request to your own job with --job.",
)

SECRET_ITSELF_NEEDED = Message(
    "US5210",
    "this needs the job's secret itself",
    cause="The orchestrators of a job authenticate to each other with the job's secret. A token that is derived from it is not sufficient.",
    remedy="Give every node of the job the same secret.",
)

SET_FOR_ALL_JOBS = Message(
    "US5212",
    "node {node} was tainted or drained for all jobs of the service ({reason}). To change that, use the secret, or a token or "
    "certificate with the role operate that was made without --job",
    cause="The node was taken out of use for all jobs, and the token or certificate is limited to one job.",
    remedy="Ask a person with such a token to run `understudy undrain NODE` or `understudy taint --node NODE --remove`, with "
    "--orchestrator and without --job.",
)

NAME_NOT_ALLOWED = Message(
    "US5211",
    "this token may not submit a job named {job}",
    cause="The token or certificate only allows submitting jobs with another name.",
    remedy="Give the job the name that the token allows, or use another token.",
)

NO_SUCH_JOB = Message(
    "US5215",
    "there is no job {job!r} here",
    cause="No job of this name was submitted to this orchestrator.",
    remedy="List the jobs with `understudy jobs`.",
)

JOB_ASIDE = Message(
    "US5216",
    "job {job} is put aside: {reason}",
    cause="The job's record in the journal cannot be read, so the orchestrator does not manage it. Its workers continue to train.",
    remedy="Use the Understudy that wrote the journal, or end the job with `understudy cancel`.",
)

PART_ASIDE = Message(
    "US5217",
    "the job is put aside: this orchestrator does not manage it",
    cause="An agent has connected for a job whose record in the journal cannot be read.",
    remedy="Use the Understudy that wrote the journal, or end the job with `understudy cancel`.",
)

OF_ANOTHER_JOB = Message(
    "US5250",
    "the agent at {host} has workers of another job, which was started earlier with the same address and secret: it is refused, and "
    "this job continues without it; end the `understudy run` of that job there",
    cause="A job was started again while the command of the one before it still ran on another node.",
    remedy="End the older `understudy run` on that node, and start the new job there. Each job can have its own --token-file.",
)

JOB_NAME_USED = Message(
    "US5218",
    "a job named {job} already exists, or existed before",
    cause="Names of jobs are used once, since journal and output are kept by name.",
    remedy="Give the job another name (--rdzv-id).",
)

NO_SUCH_NODE = Message(
    "US5219",
    "there is no node {node!r} here",
    cause="No agent of this name has connected to this orchestrator since it was started, and no job has such a node.",
    remedy="List the nodes with `understudy nodes`.",
)

NODE_NOT_DRAINED = Message(
    "US5220",
    "node {node} is not drained",
    cause="No drain of this node was requested, or it was cancelled.",
)

JOB_HAS_NO_NODE = Message(
    "US5221",
    "job {job} has no node {node}",
    cause="The job has no ranks or spares on a node of this name, and never had.",
    remedy="See the nodes in `understudy status`.",
)

DEVICE_OF_WHICH_NODE = Message(
    "US5244",
    "{device} is given without a node",
    cause="A migration to a device was requested, and no node was given.",
    remedy="Give both: `understudy migrate --rank R --to NODE:DEVICE`.",
)

NODE_HAS_NO_DEVICE = Message(
    "US5243",
    "no rank is known to compute on {device} of node {node}; known devices: {known}",
    cause="A single device can be tainted once a rank has reported that it computes on it, which it does with its first step.",
    remedy="Use one of the names that are listed, or taint the node.",
)

JOB_HAS_NOT_DRAINED = Message(
    "US5222",
    "job {job} has no drained node {node}",
    cause="The job does not have the node, or no drain of it was requested.",
    remedy="See the drains in `understudy status`.",
)

OF_JOB = Message(
    "US5223",
    "job {job}: {reason}",
    cause="One of several jobs on the node cannot leave it. The reason names the ranks without another worker.",
    remedy="Start more spares on other nodes, or drain with --force.",
)

OUTPUT_ELSEWHERE = Message(
    "US5224",
    "the output of this job goes to the terminals on which `understudy run` was started",
    cause="The job was started with `understudy run` on its nodes, so the orchestrator does not have its output.",
    remedy="See the terminals, or workers/*.log in the run directories.",
)

ASK_LEADER = Message(
    "US5225",
    "this orchestrator does not lead: use {url}",
    cause="Several orchestrators serve the job, and another one leads.",
    remedy="Send the request to the address that is named. Commands try all addresses that they know.",
)

NO_LEADER = Message(
    "US5226",
    "this orchestrator does not lead, and no leader is known: try again",
    cause="Several orchestrators serve the job, and they have not elected a leader yet, or no majority of them is running.",
    remedy="Try again in a few seconds. If that does not help, check that a majority of them is running.",
)

TOO_MUCH_EVIDENCE = Message(
    "US5230",
    "more than {most:g} pieces of evidence a minute come from this address: these were all rejected",
    cause="A program reports evidence faster than the orchestrator accepts it.",
    remedy="Report less often, or only changes; the header Retry-After gives the time of the next accepted request.",
)

NOTE_GOES_NOWHERE = Message(
    "US5231",
    "no job uses this node now, and evidence of severity note has no effect on other jobs",
    cause="Evidence of the severity note was reported about a node that no job uses, where it has no effect.",
    remedy="Report it as suspect if jobs should avoid the node. Otherwise ignore this.",
)

UNTIL_AND_FOR = Message(
    "US5232",
    "give until or for, not both",
    cause="The evidence has two end times.",
    remedy="Give one of them.",
)

NODE_WITH_PART = Message(
    "US5233",
    "a node as a whole has no part: use device or link",
    cause="The subject is the node itself, but a part of it is named, too.",
    remedy="Leave out the part, or use device or link as the subject.",
)

PART_NEEDED = Message(
    "US5234",
    "a {subject} needs the name of its part",
    cause="The subject is a device or link of a node, and none is named.",
    remedy="Name the part with the node's own name for it, such as gpu3 or eth0.",
)

LONG_AGO = Message(
    "US5235",
    "it happened {seconds:+.0f} s from now: report only evidence of the last {oldest:.0f} s, or check the clocks",
    cause="The time of the evidence is in the future, or too long ago to have an effect.",
    remedy="Report recent evidence, and synchronize the clocks of the hosts.",
)

UNTIL_TOO_FAR = Message(
    "US5236",
    "until is {seconds:.0f} s from now: at most {most:.0f}",
    cause="The evidence would be valid for longer than is allowed.",
    remedy="Give an earlier end time, or none.",
)

ALERT_GOES_NOWHERE = Message(
    "US5237",
    "the alert {alert} of Alertmanager has no effect: {reason}",
    cause="An alert names no node that is known here, or its labels and annotations are malformed.",
    remedy="Add a label with the node's name to the alert, or name the label in the URL of the webhook.",
)

ALERTS_LEFT_OUT = Message(
    "US5238",
    "Alertmanager leaves out alerts of a group that is too large: make groups smaller, or max_alerts 0",
    cause="Alertmanager truncated a group of alerts before it sent it.",
    remedy="Set max_alerts to 0 in the receiver's webhook, or group by more labels.",
)

FIRST_MESSAGE = Message(
    "US5240",
    "the first message must be {type}{reason}",
    cause="A client that connected as an agent has not introduced itself as one, or not in time.",
    remedy="Install the same version of Understudy on all hosts.",
)

CLAIM_UNKNOWN = Message(
    "US5241",
    "claim {claim} is not that of node {node}",
    cause="A node has connected for a floating spare that the job no longer requests.",
)

NODE_SERVED = Message(
    "US5245",
    "{node} is served by another agent, which is running: end that one first",
    cause="Two commands with the same --node-rank were started. The first one continues.",
    remedy="Give each node its own --node-rank. To replace the first one, end it.",
)

ANOTHER_NODE = Message(
    "US5247",
    "this token or certificate is for node {own}, not for {node}",
    cause="An agent serves the node that its token or certificate names, and no other. The names differ, or it has another node's.",
    remedy="Start the agent with that --name, or make a token (`understudy token --role agent --node`) or certificate for this node.",
)

NODE_UNNAMED = Message(
    "US5248",
    "the token or certificate must name node {node}: understudy token --role agent --node",
    cause="The agent's token or certificate was made by an earlier version and names no node, so it could speak for any.",
    remedy="Make one for each node: `understudy token --role agent --node NODE`, or `understudy certs client DIR NODE --role agent`.",
)

TOO_MANY_WAITING = Message(
    "US5251",
    "too many jobs wait for slots: at most {most} for each token or certificate, and {of_all} in total",
    cause="The orchestrator considers every waiting job whenever slots become free, so their number is limited.",
    remedy="Submit the job again when some of them have started, or cancel some.",
)

TOO_MANY_NODES = Message(
    "US5249",
    "this orchestrator knows {most} nodes already",
    cause="A service keeps at most this number of nodes. When it is reached, a new node replaces a disconnected node that runs no job, "
    "and there is none now.",
    remedy="End agents that are not needed, or use another orchestrator for some nodes.",
)

OTHER_RANKS = Message(
    "US5246",
    "{node} was started with {ranks} ranks per node; the job has {wanted}",
    cause="The command on this node and the one that serves the orchestrator have different --nproc-per-node.",
    remedy="Use the same --nproc-per-node on all nodes.",
)

NODE_RANK_TAKEN = Message(
    "US5242",
    "node rank {node_rank} is taken or out of range",
    cause="Another node of the job has the same number, or the job has no such number.",
    remedy="Give each node its own --node-rank.",
)
