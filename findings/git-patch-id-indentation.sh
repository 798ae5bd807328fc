#!/usr/bin/env bash
# Claim: Two Python changes that differ in indentation alone have one `git patch-id`.
# Tools: git 2.39.5 (Debian)
# Seen: a line moved out of a condition and the same line moved out of the loop: one id; two with --verbatim.
# Matters: who tells a change by its patch takes a fix of the indentation for the change that it fixes.
set -euo pipefail
cd "$(mktemp -d)"
git init -q .
git config user.name somebody
git config user.email somebody@example.com
printf 'for item in items:\n    if item.paid:\n        total += item.price\n        count += 1\n' > sum.py
git add sum.py
git commit -q -m base
identity() { git diff-tree -p base "$1" | git patch-id "$2" | cut -d' ' -f1; }
git tag base
sed -i 's/^        count/    count/' sum.py
git commit -q -a -m 'count in the loop'
git tag loop
git reset -q --hard base
sed -i 's/^        count/count/' sum.py
git commit -q -a -m 'count after the loop'
git tag after
echo "stable: $(identity loop --stable) $(identity after --stable)"
echo "verbatim: $(identity loop --verbatim) $(identity after --verbatim)"
[ "$(identity loop --stable)" = "$(identity after --stable)" ]
[ "$(identity loop --verbatim)" != "$(identity after --verbatim)" ]
