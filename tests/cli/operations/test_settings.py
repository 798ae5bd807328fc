"""`settings apply`: a refused file is told by the member that is wrong."""

from pathlib import Path

import pytest


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("alpha = 9.0", "alpha: Expected `float` < 1.0"),
        (
            "[rate_limits]\nper_kee = 1",
            "rate_limits: Object contains unknown field `per_kee`; the known members are per_key,",
        ),
        (
            "[metrics.order]\nwindw_seconds = 60",
            "unknown field `windw_seconds`; the known members are sources, ",
        ),
        (
            '[[value_routes]]\nroute = "*"\nvalu = 1',
            "unknown field `valu`; the known members are ",
        ),
        (
            "[metrics.order]\nwindow_seconds = -1",
            "metrics.*: window_seconds is -1: a whole multiple",
        ),
        ("alpa = 0.1", "unknown field `alpa`; the known settings are default_metric, metrics"),
    ],
)
def test_a_refused_setting_is_named_and_an_unknown_one_has_the_known_beside_it(
    command, tmp_path: Path, written: str, expected: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(written)
    result = command("settings", "apply", file, "--project", "shop")
    assert result.exit_code == 1
    assert expected in result.stderr
