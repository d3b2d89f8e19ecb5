"""Which plan a batch's figures ask for. No Spark."""

from pathlib import Path

import pytest

from cdc_platform.snapshots.choose import CASES, Facts, Plan, choose, without_workers

WHOLE = {"keyed": True, "whole": True}


@pytest.mark.parametrize(
    ("facts", "plan"),
    [
        ({"keyed": False}, Plan.KEYLESS),
        ({"keyed": False, "no_key": 3, "lost_moves": 1}, Plan.KEYLESS),
        ({"keyed": True, "lost_moves": 1}, Plan.REBUILD),
        ({"keyed": True, "lost_moves": 1, "no_key": 1}, Plan.REBUILD),
        ({"keyed": True, "lost_moves": 1, "anew": True, "empty": True}, Plan.STOP),
        ({"keyed": True, "no_key": 1, "empty": True}, Plan.STOP),
        ({"keyed": True, "changes": 0}, Plan.NOTHING),
        (WHOLE | {"empty": True}, Plan.APPEND),
        (WHOLE | {"newer": True}, Plan.REPLACE),
        (WHOLE | {"newer": True, "partial": True}, Plan.REPLACE),
        (WHOLE, Plan.MERGE),
        (WHOLE | {"partial": True}, Plan.REFOLD),
        ({"keyed": True, "empty": True, "partial": True}, Plan.MERGE),
        ({"keyed": True, "newer": True, "partial": True}, Plan.MERGE),
        ({"keyed": True, "partial": True}, Plan.REFOLD),
        ({"keyed": True}, Plan.MERGE),
    ],
)
def test_the_figures_of_a_batch_say_what_is_done(facts: dict, plan: Plan) -> None:
    assert choose(Facts(**facts)).plan is plan


def test_a_table_that_cannot_be_kept_is_stopped_with_its_figure() -> None:
    assert choose(Facts(keyed=True, no_key=3)).reason == "3 changes come without a key value"
    assert "2 changes change a key" in str(choose(Facts(keyed=True, lost_moves=2, anew=True)).reason)


def test_what_workers_cannot_do_is_merged_and_nothing_else() -> None:
    for facts in (Facts(keyed=True, whole=True, empty=True), Facts(keyed=True, whole=True, newer=True)):
        assert without_workers(choose(facts)).plan is Plan.MERGE
    assert without_workers(choose(Facts(keyed=True, partial=True))).plan is Plan.REFOLD


def test_the_documentation_has_every_case() -> None:
    told = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
    assert {c.plan for c in CASES} == set(Plan)
    for case in CASES:
        assert f"| {case.plan} | {case.when} | {case.how} |" in told
