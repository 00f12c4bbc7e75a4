"""In what two moments of a step differ, in words."""

from __future__ import annotations

from understudy.worker.encoding.messages import DrilledMoment
from understudy.worker.verification import step_digests as moments


def moment(result: object, attribute: str = "model/attribute/block.:p") -> DrilledMoment:
    shown = moments.encoded(moments.RESULT, result) | moments.encoded(attribute, 0.5)
    return DrilledMoment("end", {moments.RESULT: hash(repr(result)), attribute: 7}, moments._short(shown), 0, 0, {}, 0)


def test_a_difference_is_reported_with_both_values_if_they_are_short() -> None:
    assert moments.differences(moment(2.5), moment(2.5)) == []
    (reported,) = moments.differences(moment({"loss": 2.5, "seen": [3, "x"]}), moment(1.5))
    assert reported == "the result of the step is 1.5 on the rank and {'loss': 2.5, 'seen': [3, 'x']} on the spare"
    assert moments.is_result(reported)
    assert moments.differences(moment(object()), moment(1.5)) == ["the result of the step is not the same"]
    assert moments.differences(moment("x" * 65), moment("y")) == ["the result of the step is not the same"]
    assert moments.differences(moment(list(range(9))), moment(0)) == ["the result of the step is not the same"]
    assert moments.differences(moment(None, "net/attribute/:n"), moment(None)) == [
        "module attribute model.block.p is missing on the spare",
        "module attribute net.n is there on the spare only",
    ]


def test_arguments_are_many() -> None:
    here, there = (
        DrilledMoment("begin", {moments.ARGUMENTS: n}, moments.encoded(moments.ARGUMENTS, [(n, 0.5), {"last": n > 1}]), 0, 0, {}, 0)
        for n in (1, 2)
    )
    (reported,) = moments.differences(here, there)
    assert reported == ("the arguments of the step are [(2, 0.5), {'last': True}] on the rank and [(1, 0.5), {'last': False}] on the spare")
