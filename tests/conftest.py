"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers, watchdog
from tests.tiers import pytest_addoption as pytest_addoption
from tests.tiers import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.tiers import pytest_terminal_summary as pytest_terminal_summary
from tests.watchdog import pytest_unconfigure as pytest_unconfigure


def pytest_configure(config: pytest.Config) -> None:
    watchdog.pytest_configure(config)
    tiers.pytest_configure(config)


# How long an example takes depends on the load of the machine, not on the code.
# The gate tries the same examples every time: what another one finds is no fault of the change at hand. `make whole-units` looks for more.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("searching"), derandomize=True)
settings.load_profile("gate")

# Most tests mean to use their only spare themselves. Those of drills set `--drill`.
os.environ["UNDERSTUDY_DRILL"] = "off"

# A shell that starts the tests in the background has SIGINT ignored, nohup SIGHUP; children inherit that, and Understudy
# respects it. The tests of Ctrl-C and of a closed terminal need the usual dispositions.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
