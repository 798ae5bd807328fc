#!/usr/bin/env bash
# Reports every open experiment, and hands each decision or breach that nobody acted on to the team's
# commands.
set -euo pipefail
. "$(dirname "$0")/../platforms.sh"

# A change behind a flag has no commit; `read` would take two tabs in a row for one.
rows='.experiments[]
  | [.experiment_id, .treatment_commit // "-", .environment, .metric, .by_itself, .superseded_by]
  | @tsv'

record() { # COMMIT ENVIRONMENT SHARE
  SERVICE_PROJECT_KEY=$WRITE_KEY deploy-reward deploy "$1" --environment "$2" \
    --allocation "$3" > /dev/null
}

attestations=${RUNNER_TEMP:-$PWD}/deploy-reward-attestations
mkdir -p "$attestations"
printf '%s\n' "$ATTESTATION_KEY" > "$scratch/key.pem"
refused=0

attest() { # EXPERIMENT: keeps the signed verdict
  service "$PROJECT_KEY" "/v1/reward/$1/attestation" > "$scratch/attestation.json" &&
    mv "$scratch/attestation.json" "$attestations/$1.json" ||
    echo "::warning::no attestation of $1"
}

attested() { # EXPERIMENT COMMIT ENVIRONMENT METRIC: whether the service signed that it is kept
  [ "$REQUIRE_ATTESTATION" != true ] || deploy-reward verify "$attestations/$1.json" \
    --commit "$2" --environment "$3" --metric "$4" ${ATTESTATION_KEY:+--key "$scratch/key.pem"} \
    ${ATTESTATION_PROJECT:+--project "$ATTESTATION_PROJECT"}
}

revert() { # COMMIT: asks for a revert of the pull request that brought it, once
  local pull head
  # Of a commit of another repository, say, GitHub knows nothing; it was taken back all the same.
  pull=$(pull_request "$1") || { echo "::warning::no revert of $1: GitHub does not say what brought it" && return 0; }
  [ -n "$pull" ] && [ "$(jq -r .merged_at <<< "$pull")" != null ] || {
    echo "$1 came by no merged pull request: there is none to revert"
    return 0
  }
  head="${GITHUB_REPOSITORY%/*}:$(jq -r '"revert-\(.number)-\(.head.ref)"' <<< "$pull")"
  [ "$(github GET "$repository/pulls?state=all&head=$(uri "$head")" | jq length)" = 0 ] || return 0
  jq -n --argjson pull "$pull" --rawfile report "$2" '{
    query: "mutation($input: RevertPullRequestInput!) {
      revertPullRequest(input: $input) { revertPullRequest { number url } } }",
    variables: {input: {
      pullRequestId: $pull.node_id,
      title: "Revert \"\($pull.title)\"",
      body: "\($report)\nReverts #\($pull.number)."}}}' |
    github POST /graphql |
    jq -r 'if .errors then "::error::" + .errors[0].message
      else "Asked for the revert: " + .data.revertPullRequest.revertPullRequest.url end'
}

listed() { # MEMBER=VALUE: the rows of every page
  local cursor='' page
  while :; do
    page=$(service "$PROJECT_KEY" /v1/reward --data-urlencode "$1" --data-urlencode limit=200 \
      ${cursor:+--data-urlencode "cursor=$cursor"})
    jq -r "$rows" <<< "$page"
    cursor=$(jq -r '.next_cursor // empty' <<< "$page")
    [ -n "$cursor" ] || break
  done
}
listed pending=true > "$scratch/pending.tsv"
listed status=open > "$scratch/open.tsv"
[ ! -s "$scratch/pending.tsv" ] || echo "attestations=$attestations" >> "$GITHUB_OUTPUT"

while IFS=$'\t' read -r -u 3 experiment commit _ metric _; do
  [ "$commit" = - ] || report "$experiment" "$commit" "$metric"
done 3< "$scratch/open.tsv"

while IFS=$'\t' read -r -u 3 experiment commit environment metric by_itself newer; do
  report "$experiment" "$commit" "$metric"
  attest "$experiment"
  phase=$(service "$PROJECT_KEY" /v1/reward/gate --data-urlencode "treatment_commit=$commit" \
    --data-urlencode "environment=$environment" \
    --data-urlencode "target_metric=$metric" | jq -r .phase)
  case "$by_itself $code $phase $newer" in
    "true 0 Successful ")
      [ -n "$PROMOTE" ] || continue
      attested "$experiment" "$commit" "$environment" "$metric" || {
        echo "::error::$commit is not promoted: its verdict is not attested"
        refused=1
        continue
      }
      bash -c "$PROMOTE \"\$0\"" "$commit"
      record "$commit" "$environment" 1
      ;;
    "true 10 Failed "* | "true 13 Failed "*)
      [ -n "$ROLL_BACK" ] || continue
      bash -c "$ROLL_BACK \"\$0\"" "$commit"
      [ "$REVERT" != true ] || revert "$commit" "$scratch/$experiment.md"
      record "$commit" "$environment" 0
      ;;
    false*) echo "$experiment: $(head -1 "$scratch/$experiment.txt") Nothing is done by itself." ;;
    *) echo "$experiment ended with $code: nothing is done by itself${newer:+, $newer came later}" ;;
  esac
done 3< "$scratch/pending.tsv"
exit "$refused"
