"""What a spare leaves alone while it computes the step of a rank that is alive."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from tests.message_texts import refused

from understudy.messages import drilled_steps
from understudy.worker.drill.spare_drill import Saves, _save


def test_a_spare_saves_to_no_file_and_copies_in_memory(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    _save(torch.save, {"x": torch.ones(2)}, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer)["x"], torch.ones(2))
    there = tmp_path / "saved"
    there.write_text("by the rank")
    with refused(Saves, drilled_steps.SAVES):
        _save(torch.save, {"x": torch.ones(2)}, there)
    with there.open("ab") as file, pytest.raises(Saves):
        _save(torch.save, {"x": torch.ones(2)}, f=file)
    assert there.read_text() == "by the rank"
