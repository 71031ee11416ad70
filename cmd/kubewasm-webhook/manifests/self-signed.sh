#!/usr/bin/env bash
# Makes the certificate with openssl, for a cluster without cert-manager: puts it
# into the Secret. With webhooks.yaml as its argument, it makes API servers ask, too,
# and trust the certificate and the one before. Run both again before the year is
# over, and nothing fails meanwhile:
#
#	cmd/kubewasm-webhook/manifests/self-signed.sh
#	kubectl -n kubewasm-webhook rollout status deployment/webhook
#	cmd/kubewasm-webhook/manifests/self-signed.sh cmd/kubewasm-webhook/manifests/webhooks.yaml
set -euo pipefail
namespace=kubewasm-webhook
name=webhook.$namespace.svc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

secret() { kubectl -n "$namespace" get secret webhook-tls --ignore-not-found -o "jsonpath={.data.$1}" | base64 -d; }

if [ $# -eq 0 ]; then
  # A CA of its own for each certificate, so that both may be trusted at a time.
  secret 'tls\.crt' >"$dir/previous.crt"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$name" \
    -addext "subjectAltName=DNS:$name,DNS:$name.cluster.local" -keyout "$dir/tls.key" -out "$dir/tls.crt" 2>/dev/null
  if [ -s "$dir/previous.crt" ]; then
    # The servers take it up within two minutes; until then the old one counts.
    ca=$(cat "$dir/previous.crt" "$dir/tls.crt" | base64 | tr -d '\n')
    for kind in mutatingwebhookconfiguration validatingwebhookconfiguration; do
      kubectl get "$kind" kubewasm-webhook --ignore-not-found -o name | xargs -r -I{} kubectl patch {} --type=json \
        -p "[{\"op\":\"add\",\"path\":\"/webhooks/0/clientConfig/caBundle\",\"value\":\"$ca\"}]"
    done
  fi
  kubectl -n "$namespace" create secret generic webhook-tls --type=kubernetes.io/tls --dry-run=client -o yaml \
    --from-file="$dir/tls.crt" --from-file="$dir/tls.key" --from-file="$dir/previous.crt" | kubectl apply -f -
else
  ca=$( (secret 'previous\.crt'; secret 'tls\.crt') | base64 | tr -d '\n')
  awk -v ca="$ca" '{ print } /^  clientConfig:/ { print "    caBundle: " ca }' "$1" | kubectl apply -f -
fi
