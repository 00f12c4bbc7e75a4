"""The controller of UnderstudyJobs (`understudy kubernetes controller`)."""

from __future__ import annotations

from understudy.messages.base import Message

LOOKS_AFTER = Message(
    "US6900",
    "managing all UnderstudyJobs of {group}{namespace}",
    cause="The controller has the lock and works.",
)
LOST_LEAD = Message(
    "US6901",
    "another controller leads, or the lock could not be renewed: this controller restarts",
    cause="The controller could not renew its lock in time, for example because the API server did not respond. It ends, and its "
    "Deployment restarts it.",
)
WAITS_FOR_LEAD = Message(
    "US6902",
    "{other} leads: this controller takes over when that one is gone",
    cause="Several controllers are running, and only one of them is active at a time.",
)
LEAD_NOT_KNOWN = Message(
    "US6903",
    "{problem}; retrying",
    cause="The lock of the controllers could not be read or written.",
    remedy="Check the problem, which has its own code, if it persists. The request is retried.",
)
IMAGE_NEEDED = Message(
    "US6904",
    "--image (or UNDERSTUDY_IMAGE) is needed: orchestrators run in pods of this image",
    cause="The controller was started without the image of orchestrators.",
    remedy="Give --image, or set UNDERSTUDY_IMAGE in the Deployment.",
)
CANNOT_BE = Message(
    "US6905",
    "the resource cannot be applied, so the job continues as before and gets no new pods: {reason}",
    cause="The resource of a running job was changed in a way that cannot be applied.",
    remedy="Correct the resource.",
)
REFUSED = Message(
    "US6906",
    "{job} is refused: {reason}",
    cause="The resource of the job is not valid, or a pod of the job failed too often before all ranks had a worker.",
    remedy="Correct what the reason names. Then create the job again.",
)
TRIES_AGAIN = Message(
    "US6907",
    "{what}: {problem}; retrying",
    cause="A job, or the cluster, could not be managed at this time.",
    remedy="Check the problem, which has its own code, if it persists. The request is retried.",
)
LEFT_OVER = Message(
    "US6909",
    "{kind} {name} still belongs to a deleted job with the name {job}; waiting until Kubernetes has removed it",
    cause="A job was deleted, and another one was made under its name before Kubernetes had removed what belonged to the first one.",
    remedy="Wait. If it takes longer than a minute, look at the object's finalizers and at the cluster's garbage collector.",
)
NAME_TAKEN = Message(
    "US6910",
    "{kind} {namespace}/{name} exists already, and does not belong to this job",
    cause="The job needs an object of this name, but there is one already: another program or a person created it, or `kubectl delete "
    "--cascade=orphan` left it behind.",
    remedy="Delete the object if nothing else needs it, or give the job another name.",
)
PODS_CREATED = Message(
    "US6911",
    "created {pods}",
    cause="The controller has created pods of the job. Whether they find a node is up to the cluster's scheduler.",
)
ALL_CREATED = Message(
    "US6912",
    "all objects that the job needs exist",
    cause="Objects that could not be created before have now been created.",
)
POD_CANNOT_START = Message(
    "US6913",
    "pod {pod} cannot start: {reason}{message}",
    cause="The pod's node cannot create a container. Usually its image, or a secret or ConfigMap that it names, does not exist. Or the "
    "template sets runAsNonRoot, and the user of the image is root, or has a name instead of a number (non-numeric user).",
    remedy="Create the missing object. For an image whose user is root, create the job again with securityContext.runAsNonRoot: false "
    "in its template. For an image whose user has a name, set securityContext.runAsUser to the number of that user.",
)
NO_RANKS_THERE = Message(
    "US6908",
    "no pod of an UnderstudyJob runs on this node",
    cause="A DrainRequest named this node. Either no ranks or spares were there, or they have left.",
)
