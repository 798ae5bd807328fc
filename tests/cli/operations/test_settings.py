"""`settings apply`: a refused file is answered by the member that is wrong."""

import pytest

pytestmark = pytest.mark.shared_store


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("alpha = 9.0", "alpha: must be a number above 0 and below 1, not 9.0"),
        ("rate_limits.per_key = 0", "rate_limits.per_key: must be a whole number of at least 1"),
        ("typical_lifts = [0.1, 0.001]", "typical_lifts.1: must be a number from 0.01 to 2"),
        ("typical_lifts = []", "typical_lifts: must be a list of 1 to 4 entries, not of 0"),
        ('guardrails = "error"', 'guardrails: must be a list, not "error"'),
        ("trusted_identity = 1", "trusted_identity: must be true or false, not 1"),
        ('metrics.order.better = "up"', 'must be "higher" or "lower", not "up"'),
        (f"metrics.{'x' * 129}.cap = 1", "metrics: a name must be a text of 1 to 128 characters"),
        ('[[value_routes]]\nmetric = "a"', "value_routes.0: value_per_conversion is missing"),
        (
            "[rate_limits]\nper_kee = 1",
            "rate_limits: there is no member `per_kee`; there are per_key,",
        ),
        (
            "[metrics.order]\nwindw_seconds = 60",
            "there is no member `windw_seconds`; there are sources, ",
        ),
        (
            '[[value_routes]]\nroute = "*"\nvalu = 1',
            "there is no member `valu`; there are metric, ",
        ),
        (
            "[metrics.order]\nwindow_seconds = -1",
            "metrics.order: window_seconds is -1: a whole multiple of 300",
        ),
        (
            '[[value_routes]]\nmetric = "a"\nvalue_per_conversion = 5\ncurrency = "JPY"',
            "value_routes.0.currency: 'JPY' is refused: give the value in dollars (USD)",
        ),
        (
            'metrics.a = { kind = "mean", currency = "USD", rates = { YEN = 0.0067 } }',
            "rates names 'YEN': another currency of ISO 4217 than USD",
        ),
        (
            'metrics.a = { kind = "mean", currency = "USD", rates = { JPY = 0.000000001 } }',
            "the rate of JPY is 1e-09: above 0, below 90000, of at most 8 decimals",
        ),
        ("alpa = 0.1", "there is no member `alpa`; there are default_metric, metrics"),
        *(
            (line, "a name must be a value, not what a client writes for none")
            for line in ('unit = "undefined"', 'segments = ["null"]', 'span_unit = "${ID}"')
        ),
    ],
)
def test_a_refused_setting_is_named_and_an_unknown_one_has_the_known_beside_it(
    command, stored, tmp_path, written, expected
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(written)
    result = command("settings", "apply", file, "--project", stored.project.name)
    assert result.exit_code == 1
    assert expected in result.stderr
