#!/usr/bin/env bash
# dco.sh BASE fails if a commit between BASE and HEAD, but for merges, is not signed off by its author.
set -euo pipefail
failed=0
for commit in $(git rev-list --no-merges "$1..HEAD"); do
  author=$(git show -s --format=%ae "$commit")
  if ! git show -s --format='%(trailers:key=Signed-off-by,valueonly)' "$commit" | grep -qiF "<$author>"; then
    echo "$(git show -s --format='%h %s' "$commit"): no Signed-off-by of $author; git rebase --signoff $1 adds it"
    failed=1
  fi
done
exit $failed
