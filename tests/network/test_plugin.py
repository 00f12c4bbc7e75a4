"""The commands that build the network plugin and print its variables."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.message_texts import has, refused
from typer.testing import CliRunner

from understudy.cli import app
from understudy.messages import network_plugin
from understudy.network import plugin
from understudy.network.plugin import PluginError

needs_compiler = pytest.mark.skipif(not all(map(shutil.which, ("make", "g++"))), reason="needs make and g++")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A plugin that is compiled in no time."""
    folder = tmp_path / "sources"
    folder.mkdir()
    shutil.copy(plugin.SOURCES / "Makefile", folder)
    (folder / "one.cc").write_text('extern "C" __attribute__((visibility("default"))) int one() { return 1; }\n')
    return folder


def test_the_sources_are_in_the_package() -> None:
    assert {"Makefile", "plugin.cc", "abi.h"} <= {path.name for path in plugin.SOURCES.iterdir()}
    assert plugin.default_folder().name.startswith("netpath-")


def test_other_sources_have_another_folder(sources: Path) -> None:
    environment = {"XDG_CACHE_HOME": "/cache"}
    before = plugin.default_folder(sources, environment)
    assert before.parent == Path("/cache/understudy")
    assert before == plugin.default_folder(sources, environment)
    with (sources / "one.cc").open("a") as file:
        file.write("// changed\n")
    assert before != plugin.default_folder(sources, environment)


@needs_compiler
def test_what_was_built_is_kept(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    library = plugin.build(out, sources)
    built = library.stat().st_mtime_ns
    assert library == out / plugin.NCCL and (out / plugin.RCCL).resolve() == library
    assert plugin.build(out, sources).stat().st_mtime_ns == built
    environment = {"UNDERSTUDY_NET_CRC": "1", "UNDERSTUDY_NET_STATS": "", "HOME": "/"}
    expected = {"NCCL_NET_PLUGIN": str(out / plugin.RCCL), "NCCL_NET": "Understudy", "UNDERSTUDY_NET_CRC": "1"}
    assert plugin.variables(out, plugin.RCCL, environment) == expected


def test_missing_tools_are_named(sources: Path, tmp_path: Path) -> None:
    with refused(PluginError, network_plugin.TOOL_MISSING, tools="make and no-such-compiler"):
        plugin.build(tmp_path / "out", sources, {"CXX": "no-such-compiler", "PATH": str(tmp_path)})


@needs_compiler
def test_an_error_of_the_compiler_is_shown(sources: Path, tmp_path: Path) -> None:
    (sources / "one.cc").write_text("int one() { return }\n")
    with refused(PluginError, network_plugin.BUILD_FAILED, code=2):
        plugin.build(tmp_path / "out", sources, os.environ)


def test_a_package_without_sources_is_refused(tmp_path: Path) -> None:
    with refused(PluginError, network_plugin.SOURCES_MISSING, folder=tmp_path):
        plugin.default_folder(tmp_path)


def test_variables_need_a_library(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["network", "env", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert has(done.output.partition("understudy: ")[2].strip(), network_plugin.NOT_BUILT, folder=tmp_path)


def test_commands_print_what_the_library_has(monkeypatch: pytest.MonkeyPatch, sources: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(plugin, "SOURCES", sources)
    monkeypatch.setattr(plugin, "build", lambda folder: folder / plugin.NCCL)
    done = CliRunner().invoke(app, ["network", "build", "--out", str(tmp_path)])
    assert done.exit_code == 0 and "US2952" in done.output
    (tmp_path / plugin.NCCL).touch()
    done = CliRunner().invoke(app, ["network", "env", "--out", str(tmp_path)])
    assert done.output.splitlines()[:2] == [f"export NCCL_NET_PLUGIN={tmp_path / plugin.NCCL}", "export NCCL_NET=Understudy"]
