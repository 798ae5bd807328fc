#!/usr/bin/env bash
# Records the deploy that this workflow's event tells of, registers it, and says so on GitHub.
set -euo pipefail
. "$(dirname "$0")/../platforms.sh"

event() { jq -r "($1) // \"\" | select(. != \"\")" "$GITHUB_EVENT_PATH"; }

state=$(event .deployment_status.state)
if [ -n "$state" ] && [ "$state" != success ]; then
  echo "The deployment's state is $state: nothing is recorded."
  exit 0
fi
commit=${COMMIT:-$(event .deployment.sha)}
commit=${commit:-$GITHUB_SHA}
environment=${ENVIRONMENT:-$(event '.deployment.environment // "" | ascii_downcase')}
environment=${environment:-production}
allocation=${ALLOCATION:-$(event '.deployment.payload.allocation?')}

# The base is the newest deploy that this commit contains; GitHub says what lies between.
based_on() { # standing=...
  local deploy base
  deploy=$(service "$WRITE_KEY" /v1/deploys/last --data-urlencode "environment=$environment" \
    --data-urlencode "standing=$1" 2> /dev/null) || return 1
  # Either may be a short id.
  base=$(jq -r --arg commit "$commit" '.deploy | .commit.sha as $last
    | if ($commit | startswith($last)) or ($last | startswith($commit)) then .base_commit
      else $last end // empty' <<< "$deploy")
  [ -n "$base" ] && github GET "$repository/compare/$base...$commit" > "$scratch/compare.json" &&
    [ "$(jq -r .status "$scratch/compare.json")" = ahead ] && echo "$base"
}
members=(--environment "$environment")
[ -z "${GITHUB_REF_NAME:-}" ] || members+=(--branch "$GITHUB_REF_NAME")
if base=$(based_on false) || base=$(based_on true); then
  members+=(--base "$base" --diff "$scratch/compare.json")
fi
[ -z "$allocation" ] || members+=(--allocation "$allocation")
[ -z "$GRAPH" ] || members+=(--graph "$GRAPH")
# A push and a deployment status each know a part of the commit.
github GET "$repository/commits/$commit" > "$scratch/commit.json"
members+=(--message "$(jq -r .commit.message "$scratch/commit.json")")
members+=(--author "$(jq -r '.author.login // .commit.author.name' "$scratch/commit.json")")
members+=(--url "$(jq -r .html_url "$scratch/commit.json")")

# A run that is repeated records nothing twice; the id of a deployment status is its own.
once="github-$GITHUB_REPOSITORY-$(event .deployment_status.id)"
[ "$once" != "github-$GITHUB_REPOSITORY-" ] || once+="$GITHUB_RUN_ID-$commit-$allocation"
deploy=$(SERVICE_PROJECT_KEY=$WRITE_KEY deploy-reward deploy "$commit" "${members[@]}" \
  --idempotency-key "$once")
echo "deploy-id=$deploy" >> "$GITHUB_OUTPUT"

[ "$REGISTER" = true ] || exit 0
# By the deploy, so that a preview is measured in its own environment.
registered=(--deploy-id "$deploy")
[ -z "$METRIC" ] || registered+=(--metric "$METRIC")
experiment=$(SERVICE_PROJECT_KEY=$PROJECT_KEY deploy-reward register "${registered[@]}")
echo "experiment-id=$experiment" >> "$GITHUB_OUTPUT"
metric=$(service "$PROJECT_KEY" /v1/reward --data-urlencode "treatment_commit=$commit" |
  jq -r --arg id "$experiment" '.experiments[] | select(.experiment_id == $id) | .metric')
report "$experiment" "$commit" "$metric"
