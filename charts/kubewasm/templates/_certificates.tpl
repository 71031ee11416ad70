{{- /*
Why does helm make certificates, and when does it make new ones?

A cluster without cert-manager needs a CA that no upgrade exchanges by accident. helm upgrade can
read the cluster with lookup, so the chart keeps the CA in a Secret of its own, which no Pod mounts
and no Role names, and signs certificates with it:

  - The CA is kept while selfManaged.generation is that of its annotation.
  - A certificate is kept for renewAfterDays and as long as its names are those of the Services, and
    renewed by the same CA: API servers notice nothing.
  - A larger generation makes a CA, and the one before stays in the bundle. The certificate stays
    too, since a Secret reaches a Pod up to two minutes before or after API servers trust the CA.
    The next upgrade signs a certificate with the new CA, the third drops the old one.

Turned down: genCA at each upgrade (requests fail until all Pods have the new Secret), a Job that
signs (an image with openssl and rights to webhook configurations), a certificate of ten years
without a renewal (nobody exchanges it when its key leaks). helm template reads no cluster: each
rendering would have another CA. Use certificates.mode CertManager or Existing there.
*/ -}}

{{- /* The Secret of a component's certificate. */ -}}
{{- define "kubewasm.certificate.secret" -}}
{{- $existing := get .root.Values.certificates.existing (eq .component "policy-server" | ternary "policyServer" .component) -}}
{{- if eq .root.Values.certificates.mode "Existing" -}}
{{- required (printf "certificates.existing.%s is missing: name the Secret with tls.crt, tls.key and ca.crt" (eq .component "policy-server" | ternary "policyServer" .component)) $existing -}}
{{- else -}}
{{- include "kubewasm.name" . }}-tls
{{- end -}}
{{- end -}}

{{- define "kubewasm.certificate.names" -}}
{{- $service := printf "%s.%s.svc" (include "kubewasm.name" .) .root.Release.Namespace -}}
{{- $names := list $service (printf "%s.%s" $service .root.Values.clusterDomain) -}}
{{- if eq .component "webhook" -}}
{{- $replicas := printf "%s-replicas.%s.svc" (include "kubewasm.name" .) .root.Release.Namespace -}}
{{- $names = concat $names (list $replicas (printf "%s.%s" $replicas .root.Values.clusterDomain)) -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{- /* What helm keeps for a component, in JSON: ca, key, previous, caGeneration, crt, crtKey,
issued, crtGeneration. It is made once in a rendering. */ -}}
{{- define "kubewasm.certificate.own" -}}
{{- $memory := printf "certificate of %s" .component -}}
{{- if not (hasKey .root.Values $memory) -}}
{{- $v := .root.Values.certificates.selfManaged -}}
{{- if ge (int $v.renewAfterDays) (int $v.days) -}}
{{- fail (printf "certificates.selfManaged: renewAfterDays is %d, not less than days, which is %d" (int $v.renewAfterDays) (int $v.days)) -}}
{{- end -}}
{{- $wanted := int $v.generation -}}
{{- $name := include "kubewasm.name" . -}}
{{- $names := include "kubewasm.certificate.names" . | fromJsonArray -}}
{{- $ca := lookup "v1" "Secret" .root.Release.Namespace (printf "%s-ca" $name) -}}
{{- $leaf := lookup "v1" "Secret" .root.Release.Namespace (printf "%s-tls" $name) -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $own := dict "previous" "" -}}
{{- $caGeneration := dig "metadata" "annotations" "kubewasm.dev/generation" "0" $ca | int -}}
{{- $leafGeneration := dig "metadata" "annotations" "kubewasm.dev/generation" "0" $leaf | int -}}
{{- $_ := set $own "issued" (dig "metadata" "annotations" "kubewasm.dev/issued" "0" $leaf | int64) -}}
{{- if and $caGeneration (ge $caGeneration $wanted) -}}
{{- $_ := set $own "ca" (index $ca.data "ca.crt") -}}
{{- $_ := set $own "key" (index $ca.data "ca.key") -}}
{{- $_ := set $own "caGeneration" $caGeneration -}}
{{- if ne $leafGeneration $caGeneration -}}
{{- $_ := set $own "previous" (dig "data" "previous.crt" "" $ca) -}}
{{- end -}}
{{- else -}}
{{- $made := genCAWithKey (printf "%s-ca" $name) 3650 (genPrivateKey "ecdsa") -}}
{{- $_ := set $own "ca" ($made.Cert | b64enc) -}}
{{- $_ := set $own "key" ($made.Key | b64enc) -}}
{{- $_ := set $own "caGeneration" $wanted -}}
{{- /* Without a CA of the chart, whoever signed the certificate before is trusted until it is
replaced, by the next upgrade. */ -}}
{{- $_ := set $own "previous" (dig "data" "ca.crt" "" $ca | default (dig "data" "ca.crt" "" $leaf)) -}}
{{- end -}}
{{- $old := or (gt (sub $now ($own.issued | int64)) (mul 86400 (int64 $v.renewAfterDays))) (ne (dig "metadata" "annotations" "kubewasm.dev/names" "" $leaf) ($names | join ",")) -}}
{{- /* A certificate of the CA before is kept in the upgrade that replaces the CA, unless it is old. */ -}}
{{- $behind := and (ne $leafGeneration (int $own.caGeneration)) (eq $caGeneration (int $own.caGeneration)) -}}
{{- $signer := "" -}}
{{- $signerGeneration := int $own.caGeneration -}}
{{- if or (not $leaf) $behind -}}
{{- $signer = buildCustomCert $own.ca $own.key -}}
{{- else if $old -}}
{{- if or (not $caGeneration) (eq $leafGeneration (int $own.caGeneration)) -}}
{{- $signer = buildCustomCert $own.ca $own.key -}}
{{- else -}}
{{- $signer = buildCustomCert (index $ca.data "ca.crt") (index $ca.data "ca.key") -}}
{{- $signerGeneration = $caGeneration -}}
{{- end -}}
{{- end -}}
{{- if $signer -}}
{{- $made := genSignedCertWithKey (first $names) nil $names (int $v.days) $signer (genPrivateKey "ecdsa") -}}
{{- $_ := set $own "crt" ($made.Cert | b64enc) -}}
{{- $_ := set $own "crtKey" ($made.Key | b64enc) -}}
{{- $_ := set $own "issued" $now -}}
{{- $_ := set $own "crtGeneration" $signerGeneration -}}
{{- else -}}
{{- $_ := set $own "crt" (index $leaf.data "tls.crt") -}}
{{- $_ := set $own "crtKey" (index $leaf.data "tls.key") -}}
{{- $_ := set $own "crtGeneration" (ternary $leafGeneration 0 (gt $caGeneration 0)) -}}
{{- end -}}
{{- $_ := set .root.Values $memory $own -}}
{{- end -}}
{{- get .root.Values $memory | toJson -}}
{{- end -}}

{{- /* The CAs that API servers trust, in base64; empty if cert-manager writes them. */ -}}
{{- define "kubewasm.certificate.bundle" -}}
{{- if eq .root.Values.certificates.mode "SelfManaged" -}}
{{- $own := include "kubewasm.certificate.own" . | fromJson -}}
{{- printf "%s%s" ($own.ca | b64dec) ($own.previous | b64dec) | b64enc -}}
{{- else if eq .root.Values.certificates.mode "Existing" -}}
{{- required "certificates.existing.caBundle is missing: API servers need the CA, in PEM" .root.Values.certificates.existing.caBundle | b64enc -}}
{{- end -}}
{{- end -}}

{{- /* The annotations of webhook configurations, with more of them. */ -}}
{{- define "kubewasm.certificate.annotations" -}}
{{- if eq .root.Values.certificates.mode "CertManager" }}
cert-manager.io/inject-ca-from: {{ .root.Release.Namespace }}/{{ include "kubewasm.name" . }}
{{- end }}
{{- with .more }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubewasm.certificate.objects" -}}
{{- $name := include "kubewasm.name" . -}}
{{- $v := .root.Values.certificates -}}
{{- if eq $v.mode "SelfManaged" }}
{{- $own := include "kubewasm.certificate.own" . | fromJson }}
apiVersion: v1
kind: Secret
type: Opaque
metadata:
  name: {{ $name }}-ca
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
  annotations: {kubewasm.dev/generation: {{ $own.caGeneration | quote }}}
data:
  ca.crt: {{ $own.ca }}
  ca.key: {{ $own.key }}
  {{- with $own.previous }}
  previous.crt: {{ . }}
  {{- end }}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata:
  name: {{ $name }}-tls
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
  annotations: {kubewasm.dev/generation: {{ $own.crtGeneration | quote }}, kubewasm.dev/issued: {{ $own.issued | int64 | quote }}, kubewasm.dev/names: {{ include "kubewasm.certificate.names" . | fromJsonArray | join "," | quote }}}
data:
  tls.crt: {{ $own.crt }}
  tls.key: {{ $own.crtKey }}
  ca.crt: {{ include "kubewasm.certificate.bundle" . }}
{{- else if eq $v.mode "CertManager" }}
{{- if not $v.certManager.issuerRef }}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}-self-signed
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
spec: {selfSigned: {}}
---
# The CA outlives the certificates, so that a renewal changes nothing that API servers trust.
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}-ca
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
spec:
  isCA: true
  commonName: {{ $name }}-ca
  secretName: {{ $name }}-ca-tls
  duration: 87600h
  privateKey: {algorithm: ECDSA, rotationPolicy: Always}
  issuerRef: {name: {{ $name }}-self-signed, kind: Issuer}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}-ca
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
spec: {ca: {secretName: {{ $name }}-ca-tls}}
---
{{- end }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {{- include "kubewasm.metadata" . | nindent 2 }}
spec:
  secretName: {{ $name }}-tls
  dnsNames: {{ include "kubewasm.certificate.names" . }}
  privateKey: {algorithm: ECDSA, rotationPolicy: Always}
  issuerRef: {{- toYaml (default (dict "name" (printf "%s-ca" $name) "kind" "Issuer") $v.certManager.issuerRef) | nindent 4 }}
{{- end }}
{{- end -}}
