"""A service whose nodes have a detector of another package: a test lights a lamp, and it is reported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import packages
from tests.integration.processes import marked
from tests.integration.service import Service

from understudy.detectors.base import GROUP

LAMP = '''
import sys
import time
from pathlib import Path
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject


class Lamp(NodeDetector):
    """A lamp is a file next to the folder of the node's agent. When it goes out, that is reported as well."""

    name, every = "lamp", 0.1

    def __init__(self):
        agent = next(Path(word) for word in sys.argv if Path(word).name.startswith("agent-"))
        self.file = agent.with_name(f"lamp of {agent.name.removeprefix('agent-')}")
        self.since = 0.0

    def look(self):
        burns = self.file.exists()
        if burns and not self.since:
            self.since = time.time()
        if self.since:
            until = 0.0 if burns else time.time()
            yield Evidence(self.name, Subject.DEVICE, "", Severity.SUSPECT, "it burns", self.since, "lamp", "lamp0", until)
        if not burns:
            self.since = 0.0
'''


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """With two nodes of two slots. `lamp` gives the lamp of one."""
    installed = tmp_path / "packages"
    installed.mkdir()
    packages.install(installed, "lamps", GROUP, "lamps:Lamp", LAMP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with marked() as mark:
        made = Service(tmp_path, mark)
        made.start_nodes("ab", 2)
        yield made


def lamp(service: Service, node: str) -> Path:
    """It burns while this file is there."""
    return service.folder / f"lamp of {node}"
