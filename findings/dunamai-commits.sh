#!/usr/bin/env bash
# Claim: dunamai, which gives Poetry projects their versions, writes the commit without the g that git describe and setuptools_scm write.
# Tools: dunamai 1.26.5, setuptools_scm 10.3.4 (PyPI), git
# Seen: one commit after v1.2.3 is 1.2.3.post1.dev0+<7 digits> and 1.2.4.dev1+g<9 digits>.
# Matters: who looks for +g in service.version finds no commit in such a service's spans, and its requests belong to no build.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq dunamai==1.26.5 setuptools_scm==10.3.4
git init -q shop
commit() { git -C shop -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m "$1"; }
commit first
git -C shop tag v1.2.3
commit second
sha=$(git -C shop rev-parse HEAD)
cd shop
dunamai=$(../env/bin/dunamai from git)
scm=$(../env/bin/python -c "import setuptools_scm; print(setuptools_scm.get_version())")
echo "dunamai: ${dunamai/${sha:0:7}/<7 digits>}  setuptools_scm: ${scm/${sha:0:9}/<9 digits>}"
[ "$dunamai" = "1.2.3.post1.dev0+${sha:0:7}" ] && [ "$scm" = "1.2.4.dev1+g${sha:0:9}" ]
