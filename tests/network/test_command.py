"""`understudy network`: what it refuses, and with which code and message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.message_texts import codes
from typer.testing import CliRunner

from understudy.cli import app
from understudy.messages import network_rails

# Addresses of RFC 5737, which no machine has.
HOSTS = ["--host", "node0=192.0.2.1,198.51.100.1,203.0.113.1", "--host", "node1=192.0.2.2,198.51.100.2,203.0.113.2"]


def refused(*words: str) -> list[str]:
    done = CliRunner().invoke(app, ["network", *words])
    assert done.exit_code == 2, done.output
    return codes(done.output)


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    done = CliRunner().invoke(app, ["network", "plan", *HOSTS])
    assert done.exit_code == 2 and codes(done.output) == [network_rails.NO_NETLINK.code] and "understudy[network]" in done.output


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyroute2", reason="needs pyroute2 (pip install 'understudy[network]')")
    file, token = tmp_path / "rails.toml", tmp_path / "token"
    file.write_text("[probes]\n")
    token.write_text("short")
    for command in ("plan", "apply"):
        assert refused(command) == refused(command, "--config", str(file), *HOSTS) == [network_rails.HOSTS_NEEDED.code]
        assert refused(command, *HOSTS) == [network_rails.NOT_THIS_HOST.code]
        assert refused(command, *HOSTS, "--this", "node7") == [network_rails.NO_SUCH_HOST.code]
        assert refused(command, "--config", str(tmp_path / "none")) == [network_rails.UNREADABLE.code]
        assert refused(command, "--config", str(file)) == ["US3281"]
    assert refused("undo", "--record", str(tmp_path / "none")) == [network_rails.NOTHING_APPLIED.code]
    assert refused("rails", *HOSTS, "--token-file", str(tmp_path / "none")) == [network_rails.TOKEN_UNREADABLE.code]
    assert refused("rails", *HOSTS, "--token-file", str(token)) == [network_rails.TOKEN_SHORT.code]
    token.write_text("a secret of this test")
    assert refused("rails", *HOSTS, "--token-file", str(token)) == [network_rails.NOT_THIS_HOST.code]
