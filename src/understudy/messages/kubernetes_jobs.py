"""Jobs on Kubernetes: the resource, pods, nodes and devices, the journal, manifests, and JobSets."""

from __future__ import annotations

from understudy.messages.base import Message

_STAY = "If the ranks of the pod should not move to spares, "
_LISTED = " spec.evidence of the job's resource lists what counts as evidence."
_SPEC = "Correct it in the resource of the job."

# Evidence against a pod's node.
POD_TO_BE_LEFT = Message(
    "US6650",
    "ranks are to leave its pod: {reason}",
    cause="A person or a DrainRequest has annotated the pod, so that its ranks leave the pod.",
    remedy="Remove the annotation or the request if the ranks should stay.",
)
POD_DELETED = Message(
    "US6651",
    "its pod is being deleted{reason}",
    cause="The pod was deleted, evicted or preempted. It ends when its grace period is over.",
    remedy="Make the grace period long enough for the ranks of the pod to move to spares (terminationGracePeriodSeconds).",
)
POD_GONE = Message(
    "US6652",
    "its pod no longer exists",
    cause="The pod's object is gone: it was deleted by force, or its node was removed from the cluster.",
    remedy="No action: spares take over the ranks of the pod.",
)
NODE_GONE = Message(
    "US6653",
    "the cluster no longer has node {node}",
    cause="The node of the pod was removed from the cluster, but the pod's object still exists.",
    remedy="No action: spares take over the ranks of the pod.",
)
CORDONED = Message(
    "US6654",
    "{node} is cordoned",
    cause="The node was cordoned or drained (kubectl cordon, kubectl drain).",
    remedy=f"{_STAY}uncordon the node (kubectl uncordon).{_LISTED}",
)
TAINTED = Message(
    "US6655",
    "{node} has the taint {taint}",
    cause="The node has a taint that counts as evidence according to the resource's spec.evidence.taints.",
    remedy=f"{_STAY}remove the taint (kubectl taint).{_LISTED}",
)
CONDITION = Message(
    "US6656",
    "{node} has the condition {condition}={status}{message}",
    cause="The node has a condition that counts as evidence according to the resource's spec.evidence.conditions.",
    remedy=f"{_STAY}repair the node, so that the condition ends.{_LISTED}",
)
DEVICE_TAINTED = Message(
    "US6657",
    "device {device} has the taint {taint}",
    cause="A device that the pod uses through a resource claim was tainted by its driver or by an administrator.",
    remedy=f"{_STAY}remove the taint of the device.{_LISTED}",
)
RESOURCE_DELETED = Message(
    "US6658",
    "{kind} {namespace}/{job} is deleted",
    cause="The resource of the job was deleted, so the job is ended gracefully.",
)
SPARES_WARM = Message(
    "US6659",
    "{spares} of {wanted} spares are warm",
    cause="This number of spares could take over a rank now. The other spares are starting, waiting for a node, or in use.",
)
INCIDENT = Message(
    "US6660",
    "incident {number}: {text}",
    cause="Ranks were lost or moved, and the incident is over.",
    remedy="Run `understudy report` for the details.",
)
NO_SPARE = Message(
    "US6662",
    "the job waits for a spare for rank {ranks}",
    cause="Ranks were lost, and no spare is warm, but one is starting or was requested. The other ranks keep their processes and wait.",
    remedy="`kubectl describe pod` shows why a pod waits for a node. Give the job more spares, or room for them.",
)
ENDED = Message(
    "US6663",
    "the job ended with exit code {code}{text}",
    cause="The job is over. The text says why.",
)
POD_FAILED = Message(
    "US6661",
    "pod {pod} has failed before the job had formed: {reason}",
    cause="Pods with workers failed more often than spec.maxRestarts allows, before the job had workers for all ranks.",
    remedy="Read the pod's log (kubectl logs). Correct its template, and create the job again.",
)

# The resource of a job.
BAD_NAME = Message(
    "US6670",
    "metadata.name: at most 40 of a-z, 0-9 and -, beginning with a letter and not ending with -",
    cause="The names of pods and other objects are derived from the job's name, so its length is limited.",
    remedy="Give the job another name.",
)
BAD_FIELD = Message(
    "US6671",
    "spec.{field}: {problem}",
    cause="A field of the resource is missing, or has a value of the wrong type or out of range.",
    remedy=_SPEC,
)
TOO_MANY_PREPARED = Message(
    "US6672",
    "spec.spares.prepared: {prepared} spares cannot be prepared, because spec.spares.pods is smaller",
    cause="A spare must exist before it can be prepared.",
    remedy=_SPEC,
)
NO_DRILLS = Message(
    "US6673",
    "spec.drill.required: there are no drills with drill.at 0, or without spares.pods",
    cause="spec.drill.required is set, but a drill cannot run with these settings.",
    remedy="Give drill.at a step and the job spares, or leave out drill.required.",
)
NO_CONTAINER = Message(
    "US6674",
    "spec.template.spec.containers: one is needed, which runs `understudy run`",
    cause="The template of the pods has no container.",
    remedy=_SPEC,
)
BAD_TIMEOUTS = Message(
    "US6675",
    "spec.timeouts: {problem}",
    cause="The timeouts contradict each other.",
    remedy=_SPEC,
)

# Our objects and pods.
SECRET_IS_AN_OBJECT = Message(
    "US6680",
    "the secret of a job on Kubernetes is in a Secret that the controller creates",
    cause="A pod requested the job's secret from its scheduler. On Kubernetes it comes from a Secret.",
    remedy="Let the controller create the pods, or give the secret in UNDERSTUDY_TOKEN.",
)
LOG_PART_MISSING = Message(
    "US6681",
    "part {number} of the journal of {namespace}/{job} no longer exists",
    cause="One of the ConfigMaps that hold the job's journal was deleted. The events cannot be read without this part.",
    remedy="Restore the ConfigMap from a backup of the cluster. Otherwise delete the job and create it again; the new job continues from "
    "its checkpoints.",
)
LOG_PART_OF_ANOTHER = Message(
    "US6685",
    "ConfigMap {namespace}/{name} belongs to another job, so this job's journal cannot be written",
    cause="A deleted job of the same name has left a part of its journal, which Kubernetes is about to remove.",
    remedy="Wait. If it stays, delete the ConfigMap.",
)
JOB_REPLACED = Message(
    "US6686",
    "{kind} {namespace}/{job} was deleted and created again; this process belongs to the deleted one",
    cause="The job was deleted, and another one was created under its name, before this process was ended.",
    remedy="No action: Kubernetes ends the process with its pod.",
)
ONLY_TERM_OR_KILL = Message(
    "US6682",
    "{signal}: a pod can only be ended (SIGTERM) or killed (SIGKILL)",
    cause="Kubernetes forwards no other signals to a pod.",
    remedy="Send SIGTERM or SIGKILL.",
)
NOT_OUR_POD = Message(
    "US6683",
    "{name}: this is not a pod that Understudy created ({reason})",
    cause="Understudy creates a new pod as a copy of the pod in which the requesting process runs. This process does not run in a pod "
    "that Understudy created.",
    remedy="Create jobs as UnderstudyJob resources (understudy kubernetes job).",
)
POD_EXISTS = Message(
    "US6684",
    "a pod {pod} already exists",
    cause="An earlier pod of this name still exists.",
    remedy="Wait until it is gone, or delete it.",
)

# Manifests.
NO_PROGRAM = Message(
    "US6690",
    "give the training script, and its arguments after it",
    cause="The command was called without a training script.",
    remedy="Give the script at the end of the command.",
)
BAD_GPU_RESOURCE = Message(
    "US6692",
    "--gpu-resource {name!r}: the name of a resource is a domain and a name, such as nvidia.com/gpu and amd.com/gpu",
    cause="The value is not the name of an extended resource.",
    remedy="Give the name that kubectl describe node shows under Allocatable.",
)
BAD_JOB_NAME = Message(
    "US6691",
    "--name {name}: small letters, digits and dashes, at most 40, a letter first",
    cause="The names of objects in the cluster are derived from the job's name, so its length is limited.",
    remedy="Give another name.",
)

# JobSets.
WRONG_JOBSET_JOB = Message(
    "US6700",
    "{variable}={value!r}: the replicated jobs of {jobset} must be named {trains} and {waits}",
    cause="The JobSet has a replicated job of another name, so it is not known whether its pods have ranks.",
    remedy="Use these names, as in deploy/kubernetes/trainer.",
)
NOT_A_NUMBER = Message(
    "US6701",
    "{variable}={value!r} is not a number: the runtime of a TrainJob (torch-understudy) sets it in each pod",
    cause="A variable that each pod of a JobSet has is missing, or is not a number.",
    remedy="Use the runtime in deploy/kubernetes/trainer, or set the variable in the pod's template.",
)
BEYOND_THE_SET = Message(
    "US6702",
    "pod {index} of {job} is beyond the number of pods that {nodes_variable}={nodes} and {spares_variable}={spares} allow",
    cause="The JobSet has more pods than its variables allow.",
    remedy="Make the variables and the numbers of pods match.",
)
JOBSET_SECRET = Message(
    "US6703",
    "pods of a JobSet get the job's secret from a Secret, as UNDERSTUDY_TOKEN: see deploy/kubernetes/trainer",
    cause="A pod of a JobSet has no UNDERSTUDY_TOKEN.",
    remedy="Set it from a Secret in the pod's template.",
)
JOBSET_DRAINS_NOT = Message(
    "US6704",
    "a pod of a JobSet may not drain nodes",
    cause="The policy requests to drain nodes (scheduler.drain), but pods of a JobSet do not use the API server.",
    remedy="Leave out drain in the policy, or use an UnderstudyJob.",
)
JOBSET_CLAIMS_NOT = Message(
    "US6705",
    "the pods of a JobSet are fixed when it is created: floating spares are for UnderstudyJobs",
    cause="Floating spares were requested in a JobSet.",
    remedy="Leave out --floating-spares, or use an UnderstudyJob.",
)
JOBSET_STARTS = Message(
    "US6706",
    "{name}: only the JobSet controller starts pods",
    cause="The scheduler `jobset` was requested to start something.",
    remedy="Change the JobSet.",
)
