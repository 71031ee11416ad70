{{- /* The flags of the programs, and nothing else of the chart, stand here. Each define is a list
of arguments in YAML. */ -}}

{{- define "kubewasm.webhook.flags" -}}
{{- $name := include "kubewasm.name" (dict "root" . "component" "webhook") -}}
{{- $size := include "kubewasm.webhook.cacheSize" . -}}
{{- with .Values.webhook -}}
- -cert=/tls/tls.crt
- -key=/tls/tls.key
- -config=/policies/policies.yaml
- -cache-dir=/cache/modules
- -cache-bytes={{ div (mul 3 (include "kubewasm.bytes" $size | int64)) 4 }}
- -memory={{ include "kubewasm.bytes" .memory.guests }}
- -body-memory={{ include "kubewasm.bytes" .memory.bodies }}
- -configurations={{ $name }}{{ if $.Values.controller.enabled }},{{ $name }}-cluster{{ end }}
- -log-level={{ .logLevel }}
{{- if $.Values.registries.enabled }}
- -registries=/registries/registries.yaml
{{- if $.Values.registries.sigstoreTrustConfig }}
- -sigstore-trust-config=/sigstore/trusted_root.json
{{- end }}
{{- end }}
{{- if .clientCA }}
- -client-ca=/client-ca/ca.crt
{{- end }}
{{- if .events }}
- -events
{{- end }}
{{- if .cluster }}
- -cluster
{{- end }}
{{- if .audit.enabled }}
- -audit-interval={{ .audit.interval }}
- -audit-qps={{ .audit.qps }}
- -audit-reports={{ .audit.reports }}
- -audit-lease={{ $.Release.Namespace }}/{{ $name }}-audit
- -audit-owner={{ $name }}-audit
- -audit-skip={{ include "kubewasm.exempt" (dict "root" $ "values" .) | fromJsonArray | join "," }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* With certificates of a webhook that is not of this release, there are no webhook configurations. */ -}}
{{- define "kubewasm.controller.flags" -}}
{{- $webhook := include "kubewasm.name" (dict "root" . "component" "webhook") -}}
- -namespace={{ .Release.Namespace }}
{{- with .Values.controller.namespaces }}
- -report-namespaces={{ join "," . }}
{{- end }}
- -configurations={{ $webhook }}-cluster
{{- if and .Values.webhook.enabled .Values.webhook.cluster }}
{{- with .Values.webhook.configurations }}
- -service={{ $webhook }}
- -ca-file=/ca/ca.crt
- -replicas={{ $.Values.controller.servingReplicas }}
- -webhook-timeout={{ .timeoutSeconds }}s
- -exempt-namespaces={{ include "kubewasm.exempt" (dict "root" $ "values" $.Values.webhook) | fromJsonArray | join "," }}
{{- if include "kubewasm.webhook.conditions" $ | fromJsonArray }}
- -match-conditions=/match-conditions/match-conditions.yaml
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.registries.enabled }}
- -registries=/registries/registries.yaml
{{- if $.Values.registries.sigstoreTrustConfig }}
- -sigstore-trust-config=/sigstore/trusted_root.json
{{- end }}
{{- end }}
- -log-level={{ .Values.controller.logLevel }}
{{- end -}}

{{- /* kube-scheduler's own, and those for plugins. */ -}}
{{- define "kubewasm.scheduler.flags" -}}
{{- $size := include "kubewasm.scheduler.cacheSize" . -}}
- --config=/configuration/scheduler.yaml
- --plugin-cache-dir=/cache/modules
- --plugin-cache-bytes={{ div (mul 3 (include "kubewasm.bytes" $size | int64)) 4 }}
{{- if .Values.registries.enabled }}
- --plugin-registries=/registries/registries.yaml
{{- end }}
{{- if not (kindIs "invalid" .Values.scheduler.clusterPlugins) }}
- --plugin-cluster
{{- end }}
- --v={{ .Values.scheduler.verbosity }}
{{- if include "kubewasm.scheduler.certificate" . }}
- --tls-cert-file=/tls/tls.crt
- --tls-private-key-file=/tls/tls.key
{{- end }}
{{- end -}}

{{- define "kubewasm.agent.flags" -}}
- -config=/configuration/agent.yaml
{{- end -}}

{{- /* Kubewarden's own. */ -}}
{{- define "kubewasm.policyServer.flags" -}}
{{- with .Values.policyServer -}}
- -port=8443
- -readiness-probe-port=8081
- -cert-file=/tls/tls.crt
- -key-file=/tls/tls.key
- -policies=/policies/policies.yml
- -policies-download-dir=/cache/policies
- -sigstore-cache-dir=/cache/sigstore
- -policy-timeout={{ .policyTimeoutSeconds }}
- -log-level={{ .logLevel }}
- -log-fmt={{ .logFormat }}
- -memory={{ include "kubewasm.bytes" .memory.guests }}
- -guests-path=/policies/guests.yml
{{- if .sources }}
- -sources-path=/policies/sources.yml
{{- end }}
{{- if .verification }}
- -verification-path=/policies/verification.yml
{{- end }}
{{- if .pullSecret }}
- -docker-config-json-path=/pull-secret/.dockerconfigjson
{{- end }}
{{- end -}}
{{- end -}}
