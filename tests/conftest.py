"""What all tests share."""

from __future__ import annotations

import os
import signal

from tests.watchdog import pytest_configure as pytest_configure
from tests.watchdog import pytest_unconfigure as pytest_unconfigure

# Most tests mean to use their only spare themselves. Those of drills say so (`--drill`).
os.environ["UNDERSTUDY_DRILL"] = "off"

# A shell that starts the tests in the background has SIGINT ignored, nohup SIGHUP; children inherit that, and Understudy
# respects it. The tests of Ctrl-C and of a closed terminal need the usual dispositions.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
