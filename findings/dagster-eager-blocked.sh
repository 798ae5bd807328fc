#!/usr/bin/env bash
# Claim: Dagster's AutomationCondition.eager() runs what depends on an asset whose blocking check has just failed.
# Tools: dagster 1.13.27 (PyPI)
# Seen: in a run of all three the child is skipped; by eager() it is requested at the next evaluation, 1 asset.
# Matters: a check that is to hold bad data back from a verdict holds it back by hand alone, not where assets automate themselves.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq dagster==1.13.27
cat > assets.py <<'PY'
import dagster as dg


@dg.asset
def orders():
    return 1


@dg.asset_check(asset=orders, blocking=True)
def is_sound():
    return dg.AssetCheckResult(passed=False)


@dg.asset(deps=[orders], automation_condition=dg.AutomationCondition.eager())
def report():
    return 1


definitions = dg.Definitions(assets=[orders, report], asset_checks=[is_sound])
with dg.DagsterInstance.ephemeral() as instance:
    first = dg.evaluate_automation_conditions(definitions, instance)
    run = dg.materialize([orders, is_sound, report], instance=instance, raise_on_error=False)
    made = [event.asset_key.to_user_string() for event in run.get_asset_materialization_events()]
    second = dg.evaluate_automation_conditions(definitions, instance, cursor=first.cursor)
    print(*made, second.total_requested)
PY
seen=$(env/bin/python assets.py 2>/dev/null)
echo "made in the run, requested after it: $seen"
[ "$seen" = "orders 1" ]
