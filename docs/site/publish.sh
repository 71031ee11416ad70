#!/usr/bin/env bash
# publish.sh OUT URL builds the site of the newest patch of each of the five newest minors in OUT, to be
# published at URL, where the newest version is the first page.
set -euo pipefail
out=$1 url=$2
tags=$(git tag --list 'v*' --sort=-version:refname | grep -v -e - | awk -F. '!seen[$1 "." $2]++' | head -n 5)
[ -n "$tags" ] || { echo "there are no tags of releases" >&2; exit 1; }
work=$(mktemp -d)
for tag in $tags; do
  git worktree add --quiet --detach "$work/$tag" "$tag"
  (cd "$work/$tag" && go run ./internal/testkit/site -version "$tag" -versions "$(paste -sd, <<<"$tags")" -url "$url" "$out/$tag")
  git worktree remove --force "$work/$tag"
done
rmdir "$work"
printf '<!doctype html><title>kubewasm</title><meta http-equiv="refresh" content="0; url=%s/">\n' "$(head -n 1 <<<"$tags")" >"$out/index.html"
