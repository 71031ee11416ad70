#!/usr/bin/env bash
# drill.sh exercises the way of a vulnerability from the report to the patched commit, as docs/security-drill.md
# describes it, in a clone that it removes. The made-up hole: the guard for a mistake of wazero's compiler
# forgets operations of 64 bits, so that a guest's branches go the wrong way.
set -euo pipefail
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
step() { echo "== $*"; }

step a release with the hole
git clone -q --no-hardlinks "$root" "$dir/public"
cd "$dir/public"
export GIT_AUTHOR_NAME=Drill GIT_AUTHOR_EMAIL=drill@example.com GIT_COMMITTER_NAME=Drill GIT_COMMITTER_EMAIL=drill@example.com
file=internal/wasmbin/wazero_branches.go
sed -i 's/case OpI32And, OpI64And:/case OpI32And:/' $file
git commit -q -s -m 'Simplify a condition' $file
git tag v0.1.0

step the report, reproduced in private
git clone -q "$dir/public" "$dir/private" && cd "$dir/private"
git switch -q -c fix-ghsa-drill v0.1.0
if go test ./internal/wasmbin -run 'TestBranchesOnZeroComparedWithAnAnd$' >"$dir/reproduced" 2>&1; then
  echo "the reproducer does not fail" >&2
  exit 1
fi
grep -m 1 -e '--- FAIL' "$dir/reproduced"

step the fix, with its test, on the tag
sed -i 's/case OpI32And:/case OpI32And, OpI64And:/' $file
go test ./internal/wasmbin -run 'TestBranchesOnZeroComparedWithAnAnd$'
sed -i '0,/^## /s//## v0.1.1\n\n- Security: branches on a comparison of 64 bits with 0 could go the wrong way (GHSA-drill).\n\n## /' CHANGELOG.md
git commit -q -s -m 'Guard comparisons of 64 bits again' $file CHANGELOG.md
"$root/.github/dco.sh" v0.1.0

step the patched release and main
git tag v0.1.1
git diff --stat v0.1.0 v0.1.1
git push -q "$dir/public" v0.1.1 HEAD:refs/heads/release-0.1
git -C "$dir/public" merge -q --no-edit release-0.1
(cd "$dir/public" && git merge-base --is-ancestor v0.1.1 HEAD)
echo "patched: $(git rev-parse --short v0.1.1)"
