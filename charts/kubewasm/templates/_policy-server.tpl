{{- /* policies.yml, without what is for the webhooks. */ -}}
{{- define "kubewasm.policyServer.policies" -}}
{{- $policies := dict -}}
{{- range $name, $policy := .Values.policyServer.policies -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $name) -}}
{{- fail (printf "policyServer.policies: the name %q is not a DNS label" $name) -}}
{{- end -}}
{{- if not (or $policy.module $policy.policies) -}}
{{- fail (printf "policyServer.policies: %s: module is missing" $name) -}}
{{- end -}}
{{- $_ := set $policies $name (omit $policy "rules" "failurePolicy" "matchConditions" "namespaceSelector") -}}
{{- end -}}
{{- toYaml $policies -}}
{{- end -}}
