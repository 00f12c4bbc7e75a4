"""Where a node of the cluster is, by its labels."""

from __future__ import annotations

import pytest

from understudy.schedulers.kubernetes.places import CLIQUE, COMPUTE_DOMAIN, labels_of


@pytest.mark.parametrize(
    ("labels", "key", "found"),
    [
        (None, "rack", ()),
        ({CLIQUE: "c1.3"}, "", (("nvlink-domain", "c1.3"),)),
        ({COMPUTE_DOMAIN: "uid"}, "", (("nvlink-domain", "uid"),)),
        ({CLIQUE: "c1.3", COMPUTE_DOMAIN: "uid"}, "", (("nvlink-domain", "c1.3"),)),
        ({CLIQUE: "", COMPUTE_DOMAIN: "uid"}, "", (("nvlink-domain", "uid"),)),
        ({"rack": "r7", "other": "x"}, "rack", (("switch", "r7"),)),
        ({"rack": "r7", CLIQUE: "c"}, "rack", (("nvlink-domain", "c"), ("switch", "r7"))),
        ({"rack": "r\x1b7"}, "rack", (("switch", "r\\x1b7"),)),
        ({"": "nothing"}, "", ()),
    ],
)
def test_labels_of_a_place(labels: dict[str, str] | None, key: str, found: tuple[tuple[str, str], ...]) -> None:
    assert labels_of({"metadata": {"name": "w1", "labels": labels}}, key) == found
