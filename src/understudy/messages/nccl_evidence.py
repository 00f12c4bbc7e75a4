"""Evidence of the detector of NCCL's own view of a job (RAS)."""

from __future__ import annotations

from understudy.messages.base import Message

RAS_BEHIND = Message(
    "US3136",
    "rank {rank} of communicator {communicator} (pid {pid}) has started {issued} collectives, and {others} other ranks "
    "have started {most}; no change for {seconds:.0f} s",
    cause="NCCL counts the collectives that each rank has started. The count has not changed for this time, and this rank has started "
    "fewer than all others: they wait for it.",
    remedy="Check what this process does (py-spy dump). If it does not continue, migrate its rank or end its worker.",
)
RAS_UNRESPONSIVE = Message(
    "US3137",
    "rank {rank} of communicator {communicator} (pid {pid}) does not answer NCCL, although its process exists",
    cause="The thread of NCCL's RAS in this process answers no other process: the process is stopped, or its node's network is down.",
    remedy="Check the state of this process, and the network of its node.",
)
RAS_NO_GPU = Message(
    "US3138",
    "there are no GPUs, so no NCCL",
    cause="The detector queries the NCCL of jobs on this node, and none can run here.",
)
RAS_NOT_READ = Message(
    "US3139",
    "the answer of NCCL at {address} cannot be read: {answer}",
    cause="A program answers at the address of NCCL's RAS, but not in the JSON format of NCCL 2.28.7 and newer.",
    remedy="Use a newer NCCL, or set NCCL_RAS_ADDR for the agent to the job's value. Nothing else depends on it.",
)
