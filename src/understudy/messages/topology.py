"""Where nodes and groups of ranks are: groups that are kept together, and groups that are not."""

from __future__ import annotations

from understudy.messages.base import Message

GROUP_SPLIT = Message(
    "US4420",
    "rank {rank} goes to node {node}, outside the NVLink domain {domain} of its group {groups}: no spare inside can come",
    cause="The group is to be kept together (--keep-together), but its NVLink domain has no spare left that may take the rank, and none "
    "that starts. The job goes on with a group that spans several domains instead of ending: collectives of this group use the slower "
    "network from now on, and what needs NVLink between all of its ranks fails.",
    remedy="Bring a node of that domain back, or give the domain more spares; then move the rank: understudy migrate --rank {rank}.",
)
GROUP_SPANS = Message(
    "US4421",
    "group {group} is to be kept together, but its ranks are in the NVLink domains {domains}{more}",
    cause="The ranks of a group named by --keep-together were started on nodes of several NVLink domains. A rank that is lost is replaced "
    "in its own domain, as long as another rank of the group is there.",
    remedy="Start the job so that each group lies within one domain: order the nodes by domain, and let the size of the group divide the "
    "ranks in a domain. understudy status --topology shows where each group is.",
)
UNKNOWN_GROUPS = Message(
    "US4422",
    "--keep-together names {names}, and the script has made no such group; it has {known}",
    cause="Groups are known by the dimension names of init_device_mesh and by the group_desc of new_group. None has this name.",
    remedy="Name one of the groups that the message lists. A mesh dimension that holds all ranks has no group of its own: it is called "
    "world.",
)
NO_DOMAINS = Message(
    "US4423",
    "ranks are to be kept together, but nothing says in which NVLink domain these nodes are: {nodes}",
    cause="The nodes have no label nvlink-domain, neither from their agents nor from the scheduler. Without it a spare anywhere may take a "
    "rank of the group.",
    remedy="Start `understudy run` or `understudy agent` on each node with --label nvlink-domain=NAME. On Kubernetes the label "
    "nvidia.com/gpu.clique of the node is read, on Slurm its block.",
)
