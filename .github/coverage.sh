#!/usr/bin/env bash
# coverage.sh runs the tests of packages that take bytes of guests and of servers, and fails if less of their
# statements is covered than when the floor was measured, rounded down. Raise the floor with the coverage.
set -euo pipefail
floor=91
packages=(./abi ./codec/... ./internal/json/... ./internal/objects ./internal/statemap)
profile=$(mktemp)
trap 'rm "$profile"' EXIT
go test -coverprofile="$profile" "${packages[@]}"
total=$(go tool cover -func="$profile" | awk '/^total:/ {print $3 + 0}')
echo "coverage: $total %, floor $floor %"
awk -v total="$total" -v floor="$floor" 'BEGIN {exit total < floor}' || { echo "below the floor" >&2; exit 1; }
