{{- /* The namespaces that a component's webhooks leave out: (dict "root" $ "values" .Values.webhook). */ -}}
{{- define "kubewasm.exempt" -}}
{{- append .values.configurations.exemptNamespaces .root.Release.Namespace | uniq | toJson -}}
{{- end -}}

{{- /* The plugins of policies and of the members of groups. */ -}}
{{- define "kubewasm.webhook.all" -}}
{{- $all := .Values.webhook.policies -}}
{{- range .Values.webhook.groups -}}
{{- range $name, $member := .members -}}
{{- $all = append $all (merge (deepCopy $member) (dict "name" $name)) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "kubewasm.webhook.cacheSize" -}}
{{- $all := include "kubewasm.webhook.all" . | fromJsonArray -}}
{{- include "kubewasm.cacheSize" (dict "component" "webhook" "size" .Values.webhook.cache.size "modules" (len $all) "least" 64) -}}
{{- end -}}

{{- /* The policy file. */ -}}
{{- define "kubewasm.webhook.file" -}}
{{- $native := list "configMap" "secret" -}}
{{- $file := dict "plugins" (include "kubewasm.plugins" (dict "plugins" .Values.webhook.policies "of" "webhook.policies" "native" $native "namespace" .Release.Namespace) | fromJsonArray) -}}
{{- $groups := list -}}
{{- range $group := .Values.webhook.groups -}}
{{- $members := dict -}}
{{- range $name, $member := .members -}}
{{- $of := printf "webhook.groups: %s" $group.name -}}
{{- $plugin := include "kubewasm.plugins" (dict "plugins" (list (merge (deepCopy $member) (dict "name" $name))) "of" $of "native" $native "namespace" $.Release.Namespace) | fromJsonArray | first -}}
{{- $_ := set $members $name $plugin -}}
{{- end -}}
{{- $groups = append $groups (set (deepCopy .) "members" $members) -}}
{{- end -}}
{{- with $groups -}}{{- $_ := set $file "groups" . -}}{{- end -}}
{{- with .Values.webhook.breakGlass -}}
{{- if .until -}}
{{- $_ := set $file "breakGlass" (dict "until" .until "reason" (required "webhook.breakGlass.reason is missing" .reason)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $file -}}
{{- end -}}

{{- /* The rules by which API servers ask, which are those of match: (dict "root" $ "mutating" false).
What match has, and the rules have not, no policy would be asked about. Turned down: rules beside the
policies, which differ after a while; kubewasm manifests as the only source, which needs the modules
when values change; a server that writes its own configurations, with the right to change them. */ -}}
{{- define "kubewasm.webhook.rules" -}}
{{- $rules := list -}}
{{- $policies := list -}}
{{- range .root.Values.webhook.policies -}}
{{- if or (not $.mutating) .allowedToMutate -}}{{- $policies = append $policies . -}}{{- end -}}
{{- end -}}
{{- if not .mutating -}}{{- $policies = concat $policies .root.Values.webhook.groups -}}{{- end -}}
{{- range $policies -}}
{{- $match := .match | default dict -}}
{{- if $match.rules -}}
{{- $rules = concat $rules $match.rules -}}
{{- else if not .converts -}}
{{- fail (printf "webhook.policies: %s: match.rules is missing: without rules the policy would be asked about every request of the cluster" .name) -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $rules) -}}
{{- end -}}

{{- define "kubewasm.webhook.conditions" -}}
{{- $conditions := list -}}
{{- with .Values.webhook.configurations -}}
{{- if .skipPodStatus -}}
{{- $conditions = append $conditions (dict "name" "not-only-status" "expression" (include "kubewasm.webhook.podStatus" .)) -}}
{{- end -}}
{{- if .skipFinalizerRemovals -}}
{{- $conditions = append $conditions (dict "name" "not-only-finalizers-removed" "expression" (include "kubewasm.webhook.finalizers" .)) -}}
{{- end -}}
{{- concat $conditions .matchConditions | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Kubelets write the status of Pods many times. Labels and annotations change by it as well. */ -}}
{{- define "kubewasm.webhook.podStatus" -}}
request.resource.group != '' || request.resource.resource != 'pods' || request.?subResource.orValue('') != 'status' ||
object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) ||
object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})
{{- end -}}

{{- /* An object that is being deleted is like any other: its owner keeps it in that state for as
long as they like. Only the removal of finalizers passes, also from an object that a policy denies.
Nothing else may change. */ -}}
{{- define "kubewasm.webhook.finalizers" -}}
!(request.operation == 'UPDATE' && request.?subResource.orValue('') == '' && has(oldObject.metadata.deletionTimestamp) &&
object.all(k, k == 'metadata' || k in oldObject && object[k] == oldObject[k]) &&
oldObject.all(k, k in object) &&
object.metadata.all(k, k in ['finalizers', 'managedFields', 'resourceVersion'] || k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k]) &&
oldObject.metadata.all(k, k in ['finalizers', 'managedFields', 'resourceVersion'] || k in object.metadata) &&
object.metadata.?finalizers.orValue([]).all(f, f in oldObject.metadata.?finalizers.orValue([])))
{{- end -}}

{{- /* The members of a webhook that each has: (dict "root" $ "component" … "values" … "path" …). */ -}}
{{- define "kubewasm.webhook.common" -}}
clientConfig:
  service: {name: {{ include "kubewasm.name" . }}, namespace: {{ .root.Release.Namespace }}, path: {{ .path }}, port: 443}
  {{- with include "kubewasm.certificate.bundle" . }}
  caBundle: {{ . }}
  {{- end }}
admissionReviewVersions: [v1]
sideEffects: None
# A request for another version of a resource is converted to one that the rules name.
matchPolicy: Equivalent
timeoutSeconds: {{ .values.configurations.timeoutSeconds }}
{{- end -}}

{{- /* The API server sets this label, and nobody else changes it. */ -}}
{{- define "kubewasm.webhook.namespaces" -}}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ include "kubewasm.exempt" . }}}
{{- end -}}
