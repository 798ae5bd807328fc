#!/usr/bin/env bash
# Claim: Sentry's Python SDK names the commit of the folder in which a process was started, its Node.js SDK the one that CI names.
# Tools: sentry-sdk 2.75.0 (PyPI), @sentry/node 11.12.0 (npm), git
# Seen: a program of one repository started in another's folder has the other's commit as its release in Python, with a host's SOURCE_VERSION set too; Node.js has the variable's, and Python never reads GITHUB_SHA.
# Matters: errors of one deploy stand under two commits, one of which may belong to no deploy at all, so a canary's errors are counted for nobody.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq sentry-sdk==2.75.0
npm install --silent --no-save @sentry/node@11.12.0 >/dev/null
for name in shop tools; do
  git init -q "$name"
  git -C "$name" -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m "$name"
done
echo 'from sentry_sdk.utils import get_default_release; print(get_default_release())' > shop/app.py
echo 'import { getSentryRelease } from "@sentry/node"; console.log(getSentryRelease());' > app.mjs
folder=$(git -C tools rev-parse HEAD) served=$(git -C shop rev-parse HEAD)
unset SENTRY_RELEASE
python=$(cd tools && SOURCE_VERSION=$served GITHUB_SHA=$served ../env/bin/python ../shop/app.py)
mkdir none
elsewhere=$(cd none && GIT_CEILING_DIRECTORIES=$PWD GITHUB_SHA=$served ../env/bin/python ../shop/app.py)
javascript=$(cd tools && SOURCE_VERSION=$served GITHUB_SHA=$served node ../app.mjs)
say() { sed "s/$folder/the folder's/; s/$served/the one that is served/"; }
echo "Python: $python, outside of a repository: $elsewhere; Node.js: $javascript" | say
[ "$python" = "$folder" ] && [ "$elsewhere" = None ] && [ "$javascript" = "$served" ]
