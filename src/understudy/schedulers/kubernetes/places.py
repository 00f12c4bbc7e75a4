"""The place of a node of the cluster in the network, from its labels.

| label of the node                  | written by                                          | Understudy's label                       |
|------------------------------------|-----------------------------------------------------|------------------------------------------|
| `nvidia.com/gpu.clique`            | NVIDIA's GPU Feature Discovery                      | `nvlink-domain`                          |
| `resource.nvidia.com/computeDomain`| NVIDIA's DRA driver, while a ComputeDomain exists   | `nvlink-domain`, if there is no clique   |
| the one that `spec.topologyKey` names | the cluster's administrator                      | `switch`                                 |
"""

from __future__ import annotations

from understudy.common.bounds import plain
from understudy.core.topology import NVLINK_DOMAIN, SWITCH
from understudy.schedulers.kubernetes.api import Object

CLIQUE, COMPUTE_DOMAIN = "nvidia.com/gpu.clique", "resource.nvidia.com/computeDomain"


def labels_of(node: Object, topology_key: str) -> tuple[tuple[str, str], ...]:
    """Return Understudy's labels for the labels of a node of the cluster."""
    known = node["metadata"].get("labels") or {}
    found = {NVLINK_DOMAIN: known.get(CLIQUE) or known.get(COMPUTE_DOMAIN), SWITCH: known.get(topology_key) if topology_key else ""}
    return tuple((name, plain(str(value))) for name, value in found.items() if value)
