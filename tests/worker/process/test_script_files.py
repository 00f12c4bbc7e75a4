"""Packages that are installed are not the script's, wherever they are: a worker that warms up imports them, and only reads the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from understudy.worker.process.preload import warm_imports
from understudy.worker.script_files import is_of_script


@pytest.mark.parametrize("folder", ["base/lib/python3.11/site-packages", "usr/lib/python3/dist-packages"])
def test_what_another_environment_has_installed_is_not(tmp_path: Path, folder: str) -> None:
    package = tmp_path / folder / "installed_elsewhere" / "__init__.py"
    assert not is_of_script(str(package))
    assert is_of_script(str(tmp_path / "train.py"))


def test_nor_the_standard_library_nor_understudy() -> None:
    assert not is_of_script(json.__file__)
    assert not is_of_script(str(sys.modules[is_of_script.__module__].__file__))
    assert not is_of_script("<string>")


def test_warming_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a virtual environment with `--system-site-packages`. Its sources are not searched for imports, which would take seconds."""
    packages = tmp_path / "base" / "site-packages"
    installed, imported = packages / "installed_elsewhere", packages / "imported_by_it"
    for folder in (installed, imported):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (installed / "__init__.py").write_text("def later():\n    import imported_by_it\n")
    script, own = tmp_path / "train.py", tmp_path / "own_module.py"
    script.write_text("import installed_elsewhere\nimport own_module\n")
    own.write_text("raise AssertionError('it is only read')\n")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert warm_imports(script) == [script, own]
        assert "installed_elsewhere" in sys.modules and "imported_by_it" not in sys.modules
    finally:
        sys.modules.pop("installed_elsewhere", None)
