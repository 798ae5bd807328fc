"""The ledger's asset: the sums of each project, and a picture of the weeks."""

import base64
import re
from xml.etree import ElementTree as ET

from orchestration.dagster.keys import LEDGER
from orchestration.pictures.weeks import weeks_picture


def test_an_hourly_run_adds_up_each_project_s_verdicts(canary, instance, today) -> None:
    result = canary.run("deploy_reward_day", instance, today)
    (event,) = [one for one in result.get_asset_materialization_events() if one.asset_key == LEDGER]
    metadata = {name: value.value for name, value in event.materialization.metadata.items()}
    # Three registrations of one change are three attempts.
    counts = ("judged", "kept", "standing", "rolled_back", "expected_false")
    assert [metadata[name] for name in counts] == [3, 1, 1, 0, 0.034]
    assert re.search(r"\| 3 \| 1 \| 1 \| 0\.0 \| 0 \|", metadata["projects"])
    assert "| click | 1 |" in metadata["effects_of_keeps"]
    (encoded,) = re.findall(r"base64,([A-Za-z0-9+/=]+)", metadata["by_week"])
    assert b"stand" in base64.b64decode(encoded)


def test_weeks_of_several_projects_are_drawn_as_one() -> None:
    week = {"week": "2026-11-16", "judged": 8, "kept": 2, "standing": 1}
    picture = weeks_picture([week, {**week, "judged": 1000}, {**week, "week": "2026-11-09"}])
    assert picture is not None
    told = [text.text for text in ET.XML(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "1,008 \u00b7 4 \u00b7 2" in told
    assert told.index("2026-11-09") < told.index("2026-11-16")
    assert weeks_picture([]) is None
