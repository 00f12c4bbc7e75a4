"""The documentation as a site: every page has its place in the navigation, every link and anchor leads somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """`strict: true` in mkdocs.yml makes every warning an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "quickstart" / "index.html").exists()
