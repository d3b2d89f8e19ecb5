from cdc_platform.cli.demo_story import EQUAL, story, ui_command, where_to_look
from cdc_platform.cli.layout import render
from cdc_platform.demo.run import Outcome
from cdc_platform.formats import FORMATS


def finished(config="/x/cdc.yaml", lake="/x/lake", wrong=None) -> Outcome:
    found = Outcome(str(config), str(lake), [133, 40])
    for name in FORMATS:
        feed = {"source": f"shop_{name}", "format": name, "kafka_records": 1234, "messages": 1, "events": 2}
        found.feeds.append({**feed, "row_changes": 3, "cut": "position", "cut_reason": "it can't tell"})
        for table in ("shop.customers", "shop.orders"):
            row = {"run": 2, "source": f"shop_{name}", "format": name, "table": table, "rows": 7}
            found.snapshots.append({**row, "equal": (name, table) != wrong})
    found.steps = [{"step": "run 1: from Kafka to snapshots", "seconds": 61.0}]
    found.stages = [{"run": 1, "stage": "landing", "seconds": 50.0}]  # within the step
    found.ledger = [{"landed": 5, "accounted": 5}]
    found.problems = ["run 2, x: shop.orders: 1 missing rows"] if wrong else []
    return found


def text(outcome: Outcome) -> str:
    return "\n".join(line.text for title, data in story(outcome) for line in render(data, 100, title))


def test_the_story_names_every_format_and_fits_the_line():
    told = text(finished())
    assert told.startswith(f"Done in 1 min 1 s: {EQUAL}")
    assert max(map(len, told.splitlines())) <= 100
    for name in FORMATS:
        assert f"{name} " in told
    assert "Kafka records  messages  events  row changes" in told
    assert "1,234" in told
    tables = [line.split() for line in told.splitlines() if line.startswith("shop.")]
    assert tables == [["shop.customers", "7", *["equal"] * 6], ["shop.orders", "7", *["equal"] * 6]]


def test_a_table_that_differs_is_told_at_its_place():
    told = text(finished(wrong=("canal", "shop.orders")))
    assert told.startswith("NOT equal: 1 finding")
    row = next(line for line in told.splitlines() if line.startswith("shop.orders"))
    assert row.split().count("equal") == 5 and "NOT EQUAL" in row


def test_the_last_line_opens_the_ui_on_the_demos_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_CONFIG", raising=False)
    folder = tmp_path / ".cdc/demo"
    folder.mkdir(parents=True)
    (folder / "cdc.yaml").write_text("")
    outcome = finished(folder / "cdc.yaml", folder / "lake")
    assert ui_command(outcome).endswith("cdc-platform ui") and "CDC_CONFIG" not in ui_command(outcome)
    assert text(outcome).splitlines()[-1].strip() == ui_command(outcome)
    assert ".cdc/demo/lake/snapshots/<source>" in where_to_look(outcome)["tables"]
    assert where_to_look(outcome)["more changes (while it runs)"].endswith(" demo --more 50")

    (tmp_path / "cdc.yaml").write_text("")  # the user's own
    assert ui_command(outcome).startswith("CDC_CONFIG=.cdc/demo/cdc.yaml ")


def test_commands_of_a_demo_elsewhere_name_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = finished(tmp_path / "my demo/cdc.yaml", tmp_path / "my demo/lake")
    assert ui_command(outcome).startswith("CDC_CONFIG='my demo/cdc.yaml' ")
    assert "--folder 'my demo'" in where_to_look(outcome)["more changes (while it runs)"]
