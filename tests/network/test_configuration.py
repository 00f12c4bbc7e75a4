"""The file of hosts and rails, and how a host finds itself in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.message_texts import has, refused

from understudy.messages import detector_files, network_rails
from understudy.network.configuration import BadNetwork, Configuration, of_options, read_file, read_tokens, seen_from_here

HOSTS = ["node0=10.72.0.1,10.1.0.1,10.2.0.1", "node1=10.72.0.2,10.1.0.2,10.2.0.2", "node2=10.72.0.3,10.1.0.3,10.2.0.3"]
FILE = """
[[host]]
name = "node0"
address = "10.72.0.1"
rails = ["10.1.0.1", "10.2.0.1"]

[[host]]
name = "node1"
address = "10.72.0.2"
rails = ["10.1.0.2", "10.2.0.2"]
"""


def read(text: str, folder: Path) -> Configuration:
    (folder / "rails.toml").write_text(text)
    return read_file(folder / "rails.toml")


def test_file_and_options_are_equal(tmp_path: Path) -> None:
    assert read(FILE, tmp_path) == of_options(HOSTS[:2])


def test_a_host_finds_itself_and_its_devices() -> None:
    found = seen_from_here(of_options(HOSTS), [("127.0.0.1", "lo"), ("10.2.0.2", "eth3"), ("10.1.0.2", "eth1"), ("192.0.2.1", "eth0")])
    assert (found.host, found.address, found.bridge) == ("node1", "10.72.0.2", "understudy0")
    assert [(rail.device, rail.address) for rail in found.rails] == [("eth1", "10.1.0.2"), ("eth3", "10.2.0.2")]
    assert [(peer.name, peer.address, peer.vias) for peer in found.peers] == [
        ("node0", "10.72.0.1", ("10.1.0.1", "10.2.0.1")),
        ("node2", "10.72.0.3", ("10.1.0.3", "10.2.0.3")),
    ]


@pytest.mark.parametrize(
    "addresses, name, message, arguments",
    [
        ([("192.0.2.1", "eth0")], "", network_rails.NOT_THIS_HOST, {"known": "node0, node1, node2"}),
        ([("10.1.0.1", "a"), ("10.2.0.2", "b")], "", network_rails.SEVERAL_ARE_THIS_HOST, {"known": "node0, node1"}),
        ([("10.1.0.1", "a")], "", network_rails.RAIL_WITHOUT_DEVICE, {"address": "10.2.0.1", "found": "none"}),
        ([("10.1.0.1", "a"), ("10.1.0.1", "b"), ("10.2.0.1", "c")], "", network_rails.RAIL_WITHOUT_DEVICE, {"found": "a, b"}),
        ([("10.1.0.1", "a"), ("10.2.0.1", "a")], "", network_rails.RAILS_SHARE_DEVICE, {"device": "a"}),
        ([("10.1.0.1", "understudy0"), ("10.2.0.1", "b")], "", network_rails.BRIDGE_IS_RAIL, {"device": "understudy0"}),
        ([("10.1.0.1", "a"), ("10.2.0.1", "b")], "node7", network_rails.NO_SUCH_HOST, {"name": "node7"}),
        ([("10.1.0.1", "a"), ("10.2.0.1", "b")], "node1", network_rails.RAIL_WITHOUT_DEVICE, {"host": "node1"}),
    ],
)
def test_a_host_that_does_not_fit_is_refused(
    addresses: list[tuple[str, str]], name: str, message: object, arguments: dict[str, str]
) -> None:
    with refused(BadNetwork, message, **arguments):  # type: ignore[arg-type]
        seen_from_here(of_options(HOSTS), addresses, name)


@pytest.mark.parametrize(
    "old, new, message, arguments",
    [
        ('rails = ["10.1.0.2", "10.2.0.2"]', 'rails = ["10.1.0.2", "10.2.0.2", "10.3.0.2"]', network_rails.RAILS_DIFFER, {"host": "node1"}),
        ("10.2.0.2", "10.1.0.1", network_rails.GIVEN_TWICE, {"value": "10.1.0.1"}),
        ('"node1"', '"node0"', network_rails.GIVEN_TWICE, {"value": "node0"}),
        ("10.72.0.2", "fd00::2", detector_files.BAD_SETTING, {}),
        ("10.72.0.2", "10.72.0.256", detector_files.BAD_SETTING, {}),
        (', "10.2.0.2"', "", detector_files.BAD_SETTING, {}),
        ("address", "adress", detector_files.UNKNOWN_SETTING, {}),
        ('address = "10.72.0.2"', "", detector_files.MISSING_SETTING, {}),
        ("[[host]]", "[[host]", network_rails.NOT_TOML, {}),
        ("[[host]]", "[probes]\nhold = 100.0\nhold_most = 50.0\n[[host]]", network_rails.HOLD_ORDER, {"hold": 100.0, "most": 50.0}),
        ("[[host]]", "[probes]\ninterval = 0\n[[host]]", detector_files.BAD_SETTING, {}),
    ],
)
def test_a_mistake_in_the_file_is_named(old: str, new: str, message: object, arguments: dict[str, object], tmp_path: Path) -> None:
    assert old in FILE
    first = old == "[[host]]"
    with refused(BadNetwork, message, **arguments) as caught:  # type: ignore[arg-type]
        read(FILE.replace(old, new, 1 if first else -1), tmp_path)
    assert str(tmp_path / "rails.toml") in str(caught.value)


@pytest.mark.parametrize("value", ["node0", "node0=", "node0=10.72.0.1", "=10.72.0.1,10.1.0.1,10.2.0.1"])
def test_a_host_without_its_addresses_is_refused(value: str) -> None:
    with refused(BadNetwork, network_rails.HOST_FORM, value=value):
        of_options([value])


def test_one_host_alone_is_refused() -> None:
    with pytest.raises(BadNetwork) as caught:
        of_options(HOSTS[:1])
    assert has(caught.value, detector_files.BAD_SETTING)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with refused(BadNetwork, network_rails.UNREADABLE, path=tmp_path / "none"):
        read_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with refused(BadNetwork, network_rails.UNREADABLE, path=tmp_path / "binary"):
        read_file(tmp_path / "binary")


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with refused(BadNetwork, network_rails.TOKEN_UNREADABLE, path=file):
        read_tokens(file)
    file.write_text("\n a secret of this test \n\nthe one before that\n")
    assert read_tokens(file) == ["a secret of this test", "the one before that"]
    for text in ("", "\n\n", "short", "a secret of this test\nshort"):
        file.write_text(text)
        with refused(BadNetwork, network_rails.TOKEN_SHORT, path=file) as caught:
            read_tokens(file)
        assert "secret" not in str(caught.value)
