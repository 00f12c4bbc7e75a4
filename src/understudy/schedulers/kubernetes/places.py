"""Where a node of the cluster is in the network, by its labels.

| label of the node                  | written by                                          | what it is here                          |
|------------------------------------|-----------------------------------------------------|------------------------------------------|
| `nvidia.com/gpu.clique`            | NVIDIA's GPU Feature Discovery                      | `nvlink-domain`                          |
| `resource.nvidia.com/computeDomain`| NVIDIA's DRA driver, while a ComputeDomain is there | `nvlink-domain`, where there is no clique |
| the one that `spec.topologyKey` names | whoever runs the cluster                         | `switch`                                 |
"""

from __future__ import annotations

from understudy.common.bounds import plain
from understudy.core.topology import NVLINK_DOMAIN, SWITCH
from understudy.schedulers.kubernetes.api import Object

CLIQUE, COMPUTE_DOMAIN = "nvidia.com/gpu.clique", "resource.nvidia.com/computeDomain"


def labels_of(node: Object, topology_key: str) -> tuple[tuple[str, str], ...]:
    """Return what the labels of a node of the cluster say of its place."""
    known = node["metadata"].get("labels") or {}
    found = {NVLINK_DOMAIN: known.get(CLIQUE) or known.get(COMPUTE_DOMAIN), SWITCH: known.get(topology_key) if topology_key else ""}
    return tuple((name, plain(str(value))) for name, value in found.items() if value)
