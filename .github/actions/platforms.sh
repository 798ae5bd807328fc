#!/usr/bin/env bash
# What both actions ask of the service and of GitHub. Sourced; needs bash, curl and jq.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# In a file of its own: whoever lists the machine's processes reads their arguments.
header() { printf '%s: %s\n' "$1" "$2"; }

service() { # KEY PATH, then --data-urlencode MEMBER=VALUE ...
  curl --fail-with-body --silent --show-error --retry 5 --retry-connrefused --get \
    --header @<(header X-Service-Project-Key "$1") "$SERVICE_API_URL$2" "${@:3}"
}

github() { # METHOD PATH, and for a body JSON on stdin
  local body=()
  [ "$1" = GET ] || body=(--header 'Content-Type: application/json' --data-binary @-)
  curl --fail-with-body --silent --show-error --retry 3 --request "$1" \
    --header @<(header Authorization "Bearer $GITHUB_TOKEN") \
    --header 'Accept: application/vnd.github+json' --header 'X-GitHub-Api-Version: 2022-11-28' \
    "${body[@]}" "$GITHUB_API_URL$2"
}

repository="/repos/$GITHUB_REPOSITORY"
uri() { jq -rn --arg text "$1" '$text | @uri'; }

pull_request() { # COMMIT: the pull request that brought it, as JSON; nothing where none did
  github GET "$repository/commits/$1/pulls" | jq -c '(map(select(.merged_at)) + .)[0] // empty'
}

comment() { # NUMBER MARK FILE: one comment for each mark, brought up to date
  local page=1 found='' comments
  while [ -z "$found" ]; do
    comments=$(github GET "$repository/issues/$1/comments?per_page=100&page=$page")
    found=$(jq -r --arg mark "$2" 'map(select(.body | startswith($mark)))[0].id // empty' <<< "$comments")
    [ "$(jq length <<< "$comments")" = 100 ] || break
    page=$((page + 1))
  done
  jq -n --arg mark "$2" --rawfile body "$3" '{body: ($mark + "\n" + $body)}' |
    if [ -n "$found" ]; then
      github PATCH "$repository/issues/comments/$found"
    else
      github POST "$repository/issues/$1/comments"
    fi > /dev/null
}

check() { # COMMIT EXPERIMENT METRIC CONCLUSION FILE: one check for each experiment; none: in progress
  local name="deploy-reward: $3" found
  found=$(github GET "$repository/commits/$1/check-runs?check_name=$(uri "$name")" |
    jq -r --arg id "$2" '.check_runs | map(select(.external_id == $id))[0].id // empty')
  jq -n --arg name "$name" --arg sha "$1" --arg id "$2" --arg conclusion "$4" --rawfile report "$5" \
    --arg url "$SERVICE_API_URL/dashboard/experiments/$2" '
    ($report | split("\n") | map(select(. != "")) | .[0] | ltrimstr("## ")
      | gsub("\\\\(?<sign>.)"; .sign)) as $title  # a title is no Markdown
    | {name: $name, head_sha: $sha, external_id: $id, details_url: $url,
       output: {title: $title, summary: $report[:65000]}}
    + if $conclusion == "" then {status: "in_progress"}
      else {status: "completed", conclusion: $conclusion} end' > "$scratch/check.json"
  if [ -n "$found" ]; then
    jq 'del(.head_sha)' "$scratch/check.json" | github PATCH "$repository/check-runs/$found"
  else
    github POST "$repository/check-runs" < "$scratch/check.json"
  fi > /dev/null
}

# Says on GitHub what is known of an experiment, and sets `code` to the exit of `deploy-reward wait`.
report() { # EXPERIMENT COMMIT METRIC
  local conclusion='' pull
  code=0
  SERVICE_PROJECT_KEY=$PROJECT_KEY deploy-reward wait "$1" --timeout 0 \
    --summary "$scratch/$1.md" > "$scratch/$1.txt" 2>&1 || code=$?
  case $code in
    0) conclusion=success ;;
    10 | 11 | 13) conclusion=failure ;;
    12) conclusion=neutral ;;
    14) ;; # can't say yet
    15) conclusion=action_required ;;
    *) cat "$scratch/$1.txt" >&2 && return 0 ;;
  esac
  cat "$scratch/$1.md" >> "$GITHUB_STEP_SUMMARY"
  # The verdict is there whether or not it can be said: a commit of another repository, say.
  check "$2" "$1" "$3" "$conclusion" "$scratch/$1.md" || echo "::warning::no check on $2"
  pull=$(pull_request "$2" | jq -r .number) || pull=''
  [ -z "$pull" ] || comment "$pull" "<!-- deploy-reward $1 -->" "$scratch/$1.md" ||
    echo "::warning::no comment on #$pull"
}
