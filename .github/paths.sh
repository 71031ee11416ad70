#!/usr/bin/env bash
# paths.sh BASE prints what a change from BASE to HEAD touches, as outputs of a step: code=true unless all of it
# is documents, which the jobs for code do not read.
set -euo pipefail
code=false
while IFS= read -r file; do
  case $file in
  *testdata/* | cmd/kubewasm/templates/*) code=true ;;
  *.md | docs/images/* | docs/site/* | LICENSE | .github/ISSUE_TEMPLATE/* | .github/CODEOWNERS) ;;
  *) code=true ;;
  esac
done < <(git diff --name-only "$1...HEAD")
echo "code=$code"
