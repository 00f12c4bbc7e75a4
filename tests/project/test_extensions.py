"""Entry points of other packages are found in one order, and a mistake in them is reported with the package's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import packages
from tests.message_texts import refused

from understudy import extensions
from understudy.messages import extensions as messages
from understudy.worker.transport.backends.registry import backends

GROUP = "understudy.numbers"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packages are installed for the time of a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    extensions.entries.cache_clear()
    yield tmp_path
    extensions.entries.cache_clear()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_they_come_by_name(folder: Path) -> None:
    for name, number in (("zwei_", 2), ("eins_", 1), ("drei_", 3)):
        packages.install(folder, name, GROUP, f"{name}:NUMBER", f"NUMBER = {number}")
    assert extensions.instances(GROUP, int) == [3, 1, 2]
    assert extensions.instances("understudy.nothing", int) == []


def test_mistakes_are_reported_with_the_distribution(folder: Path) -> None:
    packages.install(folder, "no_number", GROUP, "no_number:TEXT", "TEXT = 'one'")
    with refused(ValueError, messages.WRONG_KIND, wanted="no int", found="str") as caught:
        extensions.instances(GROUP, int)
    assert "no_number = no_number:TEXT of understudy.numbers (no_number 1.0)" in str(caught.value)
    with refused(ValueError, messages.WRONG_KIND, wanted="no class derived from Path", found="str"):
        extensions.classes(GROUP, Path)


@pytest.mark.parametrize(
    ("target", "source", "reason"),
    [
        ("broken:ONE", "import nowhere", "ModuleNotFoundError"),
        ("broken:TWO", "ONE = 1", "AttributeError"),
        ("broken:ONE", "1 / 0", "division by zero"),
    ],
)
def test_what_cannot_be_loaded_is_not_left_out(folder: Path, target: str, source: str, reason: str) -> None:
    packages.install(folder, "broken", GROUP, target, source)
    with refused(ValueError, messages.NOT_LOADED) as caught:
        extensions.instances(GROUP, int)
    assert "(broken 1.0)" in str(caught.value) and reason in str(caught.value)


def test_two_of_one_name_are_refused(folder: Path) -> None:
    packages.install(folder, "one", GROUP, "one:NUMBER", "NUMBER = 1")
    packages.install(folder, "other", GROUP, "other:NUMBER", "NUMBER = 1")
    (folder / "other-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\none = other:NUMBER\n")
    with refused(ValueError, messages.SAME_NAME) as caught:
        extensions.instances(GROUP, int)
    assert "(one 1.0)" in str(caught.value) and "(other 1.0)" in str(caught.value)


def test_a_backend_of_another_package_is_one_like_ours(folder: Path) -> None:
    source = """
        from understudy.worker.transport.backends.base import Backend

        class Other(Backend):
            name = "other"

            def install(self, host): ...
    """
    assert list(backends()) == ["gloo", "nccl", "nccl2"]
    packages.install(folder, "other_backend", "understudy.backends", "other_backend:Other", source)
    extensions.entries.cache_clear()
    with refused(ValueError, messages.INCOMPLETE, lacking="connect", base="Backend") as caught:
        backends()
    assert "(other_backend 1.0)" in str(caught.value)


def test_a_backend_of_a_name_that_is_taken_is_refused(folder: Path) -> None:
    source = "from understudy.worker.transport.backends.gloo import Gloo\nclass Mine(Gloo): ..."
    packages.install(folder, "my_gloo", "understudy.backends", "my_gloo:Mine", source)
    with pytest.raises(ValueError, match="two backends named 'gloo': Gloo and Mine"):
        backends()
