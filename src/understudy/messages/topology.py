"""Where nodes and groups of ranks are: groups that are kept together, and groups that are not."""

from __future__ import annotations

from understudy.messages.base import Message

GROUP_SPLIT = Message(
    "US4420",
    "rank {rank} goes to node {node}, outside the NVLink domain {domain} of its group {groups}: no spare in that domain is available",
    cause="The group is to be kept together (--keep-together), but its NVLink domain has no spare left that may take over the rank, and "
    "none is starting. The job continues with a group that spans several domains instead of ending: collectives of this group use the "
    "slower network from now on, and anything that needs NVLink between all of its ranks fails.",
    remedy="Bring a node of that domain back, or give the domain more spares; then move the rank: understudy migrate --rank {rank}.",
)
GROUP_SPANS = Message(
    "US4421",
    "group {group} is to be kept together, but its ranks are in the NVLink domains {domains}{more}",
    cause="The ranks of a group that --keep-together names were started on nodes of several NVLink domains. A rank that is lost is "
    "replaced in its own domain, as long as another rank of the group is there.",
    remedy="Start the job so that each group lies within one domain: order the nodes by domain, and choose a group size that divides the "
    "number of ranks in a domain. understudy status --topology shows where each group is.",
)
UNKNOWN_GROUPS = Message(
    "US4422",
    "--keep-together names {names}, and the script has created no such group; it has {known}",
    cause="Groups are identified by the dimension names of init_device_mesh and by the group_desc of new_group. No group has this name.",
    remedy="Use one of the groups that are listed. A mesh dimension that holds all ranks is not a separate group: it is called world.",
)
NO_DOMAINS = Message(
    "US4423",
    "ranks are to be kept together, but the NVLink domain of these nodes is not known: {nodes}",
    cause="The nodes have no label nvlink-domain, neither from their agents nor from the scheduler. Without it, a spare on any node may "
    "take over a rank of the group.",
    remedy="Start `understudy run` or `understudy agent` on each node with --label nvlink-domain=NAME. On Kubernetes the label "
    "nvidia.com/gpu.clique of the node is read, on Slurm its block.",
)
