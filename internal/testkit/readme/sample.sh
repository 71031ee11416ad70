#!/usr/bin/env bash
# sample.sh SEED [N] prints N statements of README.md and the guides, 20 by default, that a maintainer measures
# again before a release: sentences and rows with a figure, a name in code or a command, chosen by the seed.
set -euo pipefail
cd "$(dirname "$0")/../../.."
random() { openssl enc -aes-256-ctr -pass "pass:$1" -nosalt -pbkdf2 </dev/zero 2>/dev/null; }
for page in README.md docs/*.md; do
  case $page in docs/performance.md | docs/metrics.md | docs/threat-model.md | docs/compatibility.md | docs/README.md) continue ;; esac
  awk -v page="$page" '/^```/ {code = !code; next} !code && !/^#/ && !/^\|[-|]*$/ {print page ": " $0}' "$page" |
    sed 's/\([a-z)`][.;]\) \([A-Z`]\)/\1\n'"${page//\//\\/}"': \2/g'
done | grep -E '[0-9]|`' | shuf -n "${2:-20}" --random-source=<(random "$1")
