"""Messages of `understudy network build` and `understudy network env`."""

from __future__ import annotations

from understudy.messages.base import Message

TOOL_MISSING = Message(
    "US2950",
    "cannot build the network plugin: {tools} not found on PATH",
    cause="The plugin is compiled on the machine where it is used. This needs GNU make and a C++20 compiler: GCC 11 or clang 14, or newer.",
    remedy="Install them (Debian: apt-get install make g++), or build on another machine with the same processor architecture and copy the "
    "folder that it prints. Another compiler: set CXX.",
)

BUILD_FAILED = Message(
    "US2951",
    "cannot build the network plugin: {command} ended with {code}: {output}",
    cause="The compiler refused the sources, or the folder cannot be written.",
    remedy="Check that the compiler knows C++20 and that there is space in the folder; choose another folder with --out.",
)

BUILT = Message(
    "US2952",
    "the network plugin is in {folder}",
    cause="The plugin was compiled, or an earlier result for the same sources was found.",
)

NOT_BUILT = Message(
    "US2953",
    "there is no network plugin in {folder}",
    cause="The plugin has not been built, or this version of Understudy has other sources than the one that built it.",
    remedy="Run understudy network build on this machine, with the same --out if one was given.",
)

SOURCES_MISSING = Message(
    "US2954",
    "the sources of the network plugin are not in {folder}",
    cause="The installed package is incomplete.",
    remedy="Install Understudy again, from its wheel or its sources.",
)
