#!/usr/bin/env bash
# build.sh MINOR FILE builds the scheduler for a minor of Kubernetes, such as 1.36.
# GOOS and GOARCH are those of the environment.
set -euo pipefail
minor=${1:?the minor of Kubernetes, such as 1.36} file=${2:?the file to write}
file=$(realpath -m "$file")
cd "$(dirname "$0")"
modfile=go${minor/./}.mod
[ "$minor" != 1.37 ] || modfile=go.mod
[ -f "$modfile" ] || { echo "no scheduler for Kubernetes $minor" >&2; exit 1; }
version=$(go list -modfile="$modfile" -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' k8s.io/kubernetes)
go build -modfile="$modfile" -trimpath -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$file" .
