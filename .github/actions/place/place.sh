#!/usr/bin/env bash
# Asks for the place of a change and waits; ends as `deploy-reward place` does.
set -euo pipefail

# A merge queue's branch is gh-readonly-queue/main/pr-104-<commit>.
number=$(jq -r '(.merge_group.head_ref // "" | capture("/pr-(?<number>[0-9]+)-").number)
  // .pull_request.number // empty' "$GITHUB_EVENT_PATH")
[ -n "$CHANGE" ] || CHANGE=${number:+#$number}
[ -n "$COMMIT$FLAG" ] || COMMIT=$GITHUB_SHA
asked=(--until "$UNTIL" --timeout "$TIMEOUT" --json)
[ -z "$COMMIT" ] || asked+=(--commit "$COMMIT")
[ -z "$CHANGE" ] || asked+=(--change "$CHANGE")
[ -z "$FLAG" ] || asked+=(--flag "$FLAG")
[ -z "$METRIC" ] || asked+=(--metric "$METRIC")
code=0
place=$(deploy-reward place "${asked[@]}") || code=$?
jq -r '.sentence' <<< "$place" | tee -a "$GITHUB_STEP_SUMMARY"
jq -r '"place-id=\(.place_id)", "kind=\(.kind // "")", "share=\(.share // "")",
  "action=\(.action)", "experiment-id=\(.experiment_id // "")"' <<< "$place" >> "$GITHUB_OUTPUT"
exit "$code"
