#!/usr/bin/env bash
# Makes the certificate with openssl, for a cluster without cert-manager: puts it
# into the Secret, and its CA into the webhook configurations. Run it again before
# the year is over.
set -euo pipefail
namespace=kubewasm-webhook
name=webhook.$namespace.svc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$name" \
  -addext "subjectAltName=DNS:$name,DNS:$name.cluster.local" -keyout "$dir/tls.key" -out "$dir/tls.crt" 2>/dev/null
kubectl -n "$namespace" create secret tls webhook-tls --cert="$dir/tls.crt" --key="$dir/tls.key" --dry-run=client -o yaml | kubectl apply -f -
ca=$(base64 -w0 <"$dir/tls.crt")
for kind in mutatingwebhookconfiguration validatingwebhookconfiguration; do
  kubectl patch "$kind" kubewasm-webhook --type=json -p "[{\"op\":\"add\",\"path\":\"/webhooks/0/clientConfig/caBundle\",\"value\":\"$ca\"}]"
done
