# Acts on what was decided, with `ask` of docs/ci.md.
uri() { jq -rn --arg text "$1" '$text | @uri'; }

ask GET '/v1/reward?pending=true' "$PROJECT_KEY" < /dev/null |
  jq -r '.experiments[]
    | [.action, .treatment_commit, .environment, .metric, .by_itself, .superseded_by] | @tsv' \
    > pending.tsv
while IFS=$'\t' read -r -u 3 action commit environment metric by_itself newer; do
  gate="treatment_commit=$commit&environment=$(uri "$environment")&target_metric=$(uri "$metric")"
  phase=$(ask GET "/v1/reward/gate?$gate" "$PROJECT_KEY" < /dev/null | jq -r .phase)
  case "$by_itself $action $phase $newer" in
    "true ship Successful ") ./promote.sh "$commit"; share=1 ;;
    "true roll_back Failed "*) ./roll-back.sh "$commit"; share=0 ;;
    *)
      echo "$commit: $action, nothing is done by itself${newer:+, $newer came later}"
      continue
      ;;
  esac
  jq -n --arg sha "$commit" --arg environment "$environment" --argjson share "$share" \
    '{commit: {sha: $sha}, environment: $environment, allocation: $share}' |
    ask POST /v1/deploys "$WRITE_KEY" > /dev/null
done 3< pending.tsv
