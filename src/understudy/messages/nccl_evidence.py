"""What the detector of NCCL's own view of a job (RAS) reports."""

from __future__ import annotations

from understudy.messages.base import Message

RAS_BEHIND = Message(
    "US3136",
    "rank {rank} of communicator {communicator} (pid {pid}) has started {issued} collectives, {others} others {most}, for {seconds:.0f} s",
    cause="NCCL counts the collectives that each rank has started. None has moved for this time, and this rank has started fewer than all "
    "others: they wait for it.",
    remedy="Look at what this process does (py-spy dump). If it does not go on, migrate its rank or end its worker.",
)
RAS_UNRESPONSIVE = Message(
    "US3137",
    "rank {rank} of communicator {communicator} (pid {pid}) does not answer NCCL, though its process is there",
    cause="The thread of NCCL's RAS in this process answers no other process: the process is stopped, or its node's network is.",
    remedy="Look at the state of this process, and at the network of its node.",
)
RAS_NO_GPU = Message(
    "US3138",
    "there are no GPUs, so no NCCL",
    cause="The detector asks the NCCL of jobs on this node, and none can run here.",
)
RAS_NOT_READ = Message(
    "US3139",
    "NCCL at {address} answers what cannot be read: {answer}",
    cause="Something answers at the address of NCCL's RAS, and not as NCCL 2.28.7 and newer do when they are asked for JSON.",
    remedy="Use a newer NCCL, or set NCCL_RAS_ADDR for the agent as for the job. Nothing else depends on it.",
)
