{{- /* The right to write the reports of a component's processes. */ -}}
{{- define "kubewasm.reports" -}}
{{- $name := include "kubewasm.name" . -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-reports
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
rules:
- apiGroups: [kubewasm.dev]
  resources: [pluginreports]
  verbs: [create, patch]
---
{{ include "kubewasm.binding" (merge (dict "name" (printf "%s-reports" $name) "role" (printf "%s-reports" $name) "kind" "Role" "namespace" .root.Release.Namespace) .) }}
{{- end -}}

{{- /* The process in a PluginReport. */ -}}
{{- define "kubewasm.process" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
{{- end -}}

{{- /* The name of a component: (dict "root" $ "component" "webhook"). */ -}}
{{- define "kubewasm.name" -}}
{{- $base := .root.Values.fullnameOverride -}}
{{- if not $base -}}
{{- $name := default .root.Chart.Name .root.Values.nameOverride -}}
{{- $base = contains $name .root.Release.Name | ternary .root.Release.Name (printf "%s-%s" .root.Release.Name $name) -}}
{{- end -}}
{{- if not (hasSuffix (printf "-%s" .component) $base) -}}
{{- $base = printf "%s-%s" (trunc 40 $base | trimSuffix "-") .component -}}
{{- end -}}
{{- $base | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubewasm.selector" -}}
app.kubernetes.io/name: kubewasm-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "kubewasm.labels" -}}
{{ include "kubewasm.selector" . }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: kubewasm
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The metadata of an object in the namespace of the release. */ -}}
{{- define "kubewasm.metadata" -}}
name: {{ include "kubewasm.name" . }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "kubewasm.labels" . | nindent 2 }}
{{- end -}}

{{- /* The values of a component: (dict "root" $ "component" "policy-server"). */ -}}
{{- define "kubewasm.account" -}}
{{- $values := get .root.Values (eq .component "policy-server" | ternary "policyServer" .component) -}}
{{- default (include "kubewasm.name" .) $values.serviceAccount.name -}}
{{- end -}}

{{- /* The image: (dict "root" $ "image" .Values.webhook.image "of" "webhook" "tag" "…"). A released
chart has the digests of its images in its annotations. */ -}}
{{- define "kubewasm.image" -}}
{{- $released := index (.root.Chart.Annotations | default dict) (printf "kubewasm.dev/digest.%s" .of) -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else if and $released (not .image.tag) -}}
{{- printf "%s:%s@%s" .image.repository .tag $released -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* A scheduler may be one minor older than the API server, and not newer. The oldest and the
newest minor for which there is a scheduler stand here. */ -}}
{{- define "kubewasm.scheduler.minor" -}}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor | int -}}
{{- printf "1.%d" (max 35 (min $minor 38)) -}}
{{- end -}}

{{- /* The bytes of a quantity in Mi or Gi. */ -}}
{{- define "kubewasm.bytes" -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- mul (int64 $number) (eq (trimPrefix $number .) "Gi" | ternary 1073741824 1048576) -}}
{{- end -}}

{{- /* The size of a cache: (dict "component" "webhook" "size" "" "modules" 3 "least" 64). A module in Go takes 10 MB
when compiled, and two versions of it are kept while one replaces the other, so each has 32Mi, of
which three quarters are for compiled modules. */ -}}
{{- define "kubewasm.cacheSize" -}}
{{- $size := default (printf "%dMi" (max 512 .least (mul 32 .modules))) .size -}}
{{- if lt (include "kubewasm.bytes" $size | int64) (mul .least 1048576) -}}
{{- fail (printf "%s: cache.size is %s, less than the %dMi that the program may keep" .component $size .least) -}}
{{- end -}}
{{- $size -}}
{{- end -}}

{{- /* GOMEMLIMIT in bytes. What the guests take lies outside of it: both fit in the limit of the
container: (dict "values" .Values.webhook "component" "webhook"). */ -}}
{{- define "kubewasm.goLimit" -}}
{{- $go := include "kubewasm.bytes" .values.memory.goLimit | int64 -}}
{{- $limit := dig "limits" "memory" "" .values.resources -}}
{{- if regexMatch "^[0-9]+[MG]i$" $limit -}}
{{- $all := $go -}}
{{- with .values.memory.guests -}}{{- $all = add $go (include "kubewasm.bytes" . | int64) -}}{{- end -}}
{{- if gt $all (include "kubewasm.bytes" $limit | int64) -}}
{{- fail (printf "%s: memory.goLimit and memory.guests together are more than resources.limits.memory of %s" .component $limit) -}}
{{- end -}}
{{- end -}}
{{- $go -}}
{{- end -}}

{{- /* The file of a module that the kubelet mounts: (dict "plugin" $plugin "of" "webhook.policies"
"mounts" (list "image" "configMap")). Empty if the program fetches it. */ -}}
{{- define "kubewasm.mounted" -}}
{{- $name := required (printf "%s: a name is missing" .of) .plugin.name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$" $name) -}}
{{- fail (printf "%s: the name %q is not a DNS label of at most 52 characters" .of $name) -}}
{{- end -}}
{{- $module := .plugin.module | default dict -}}
{{- if ne (len (keys (pick $module "file" "configMap" "secret" "image" "https" "oci" "bytes"))) 1 -}}
{{- fail (printf "%s: %s: module needs one of file, configMap, secret, image, https, oci and bytes" .of $name) -}}
{{- end -}}
{{- if and $module.https (not $module.sha256) -}}
{{- fail (printf "%s: %s: module.https needs module.sha256" .of $name) -}}
{{- end -}}
{{- if and $module.secret (not (has "secret" .native)) -}}
{{- fail (printf "%s: %s: module.secret is for the webhook: use configMap or extraVolumes" .of $name) -}}
{{- end -}}
{{- with $module.image -}}
{{- $_ := required (printf "%s: %s: module.image.reference is missing" $.of $name) .reference -}}
/modules/{{ $name }}/{{ required (printf "%s: %s: module.image.path is missing" $.of $name) .path | trimPrefix "/" }}
{{- end -}}
{{- with $module.configMap -}}
{{- $_ := required (printf "%s: %s: module.configMap.name is missing" $.of $name) .name -}}
{{- $key := required (printf "%s: %s: module.configMap.key is missing" $.of $name) .key -}}
{{- if not (has "configMap" $.native) -}}/modules/{{ $name }}/{{ $key }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The plugins in the grammar of the program, in JSON: (dict "plugins" … "of" … "native" …
"namespace" …). native are the sources in the API server that the program reads itself. */ -}}
{{- define "kubewasm.plugins" -}}
{{- $plugins := list -}}
{{- $names := dict -}}
{{- range .plugins -}}
{{- $file := include "kubewasm.mounted" (dict "plugin" . "of" $.of "native" $.native) -}}
{{- if hasKey $names .name -}}{{- fail (printf "%s: there are two plugins %s" $.of .name) -}}{{- end -}}
{{- $_ := set $names .name true -}}
{{- $module := deepCopy (omit .module "image") -}}
{{- if $file -}}{{- $module = set (omit $module "configMap") "file" $file -}}{{- end -}}
{{- range $kind := list "configMap" "secret" -}}
{{- with get $module $kind -}}{{- $_ := set . "namespace" (default $.namespace .namespace) -}}{{- end -}}
{{- end -}}
{{- $plugins = append $plugins (set (deepCopy .) "module" $module) -}}
{{- end -}}
{{- toJson $plugins -}}
{{- end -}}

{{- define "kubewasm.plugins.volumes" -}}
{{- range .plugins -}}
{{- $volume := printf "module-%s" .name -}}
{{- with (.module | default dict).image }}
- {name: {{ $volume }}, image: {reference: {{ .reference | quote }}, pullPolicy: {{ default "IfNotPresent" .pullPolicy }}}}
{{- end }}
{{- with (.module | default dict).configMap }}
{{- if not (has "configMap" $.native) }}
- {name: {{ $volume }}, configMap: {name: {{ .name }}}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubewasm.plugins.mounts" -}}
{{- range .plugins }}
{{- if or (.module | default dict).image (and (.module | default dict).configMap (not (has "configMap" $.native))) }}
- {name: module-{{ .name }}, mountPath: /modules/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Volumes and mounts of registries, with the file of them and the trusted root of Sigstore for
programs that have a flag for each. */ -}}
{{- define "kubewasm.registries.volumes" -}}
{{- if .root.Values.registries.enabled }}
{{- if .file }}
- {name: registries, configMap: {name: {{ include "kubewasm.name" . }}-registries}}
{{- with .root.Values.registries.sigstoreTrustConfig }}
- {name: sigstore, configMap: {name: {{ . }}}}
{{- end }}
{{- end }}
{{- with .root.Values.registries.pullSecret }}
- {name: pull-secret, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .root.Values.registries.keys }}
- {name: keys, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubewasm.registries.mounts" -}}
{{- if .root.Values.registries.enabled }}
{{- if .file }}
- {name: registries, mountPath: /registries, readOnly: true}
{{- if .root.Values.registries.sigstoreTrustConfig }}
- {name: sigstore, mountPath: /sigstore, readOnly: true}
{{- end }}
{{- end }}
{{- if .root.Values.registries.pullSecret }}
- {name: pull-secret, mountPath: /pull-secret, readOnly: true}
{{- end }}
{{- if .root.Values.registries.keys }}
- {name: keys, mountPath: /keys, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- /* docs/schemas/registries.json, in JSON: (dict "root" $ "dir" "/cache/artifacts" "size" "512Mi").
Artifacts have an eighth of the volume. */ -}}
{{- define "kubewasm.registries" -}}
{{- $config := deepCopy .root.Values.registries.config -}}
{{- $_ := set $config "cacheDir" .dir -}}
{{- $_ := set $config "cacheBytes" (div (include "kubewasm.bytes" .size | int64) 8) -}}
{{- if .root.Values.registries.pullSecret -}}
{{- $_ := set $config "dockerConfig" "/pull-secret/.dockerconfigjson" -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{- /* The rules for objects that plugins look up: (dict "plugins" … "verbs" … "namespaced" false). */ -}}
{{- define "kubewasm.objectRules" -}}
{{- $rules := list -}}
{{- range .plugins -}}
{{- range .objects -}}
{{- if or (not $.split) (not .namespaces) -}}
{{- $rule := include "kubewasm.objectRule" (dict "resource" .resource "verbs" $.verbs) | fromJson -}}
{{- with .query -}}
{{- $rule = include "kubewasm.queryRule" . | fromJson -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- with .apply -}}
{{- $whole := dict "apiGroups" $rule.apiGroups "resources" (list) "verbs" (list "patch") -}}
{{- range . -}}
{{- $part := eq . "status" | ternary (printf "%s/status" (first $rule.resources)) (first $rule.resources) -}}
{{- $_ := set $whole "resources" (append $whole.resources $part | uniq) -}}
{{- end -}}
{{- $rules = append $rules $whole -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $rules) -}}
{{- end -}}

{{- /* The rule for the source of a query. */ -}}
{{- define "kubewasm.queryRule" -}}
{{- if .service -}}
{{- dict "apiGroups" (list "") "resources" (list "services/proxy") "resourceNames" (list (splitList "/" .service | last)) "verbs" (list "get") | toJson -}}
{{- else if .custom -}}
{{- dict "apiGroups" (list "custom.metrics.k8s.io") "resources" (list .custom) "verbs" (list "get") | toJson -}}
{{- else -}}
{{- dict "apiGroups" (list "external.metrics.k8s.io") "resources" (list .external) "verbs" (list "list") | toJson -}}
{{- end -}}
{{- end -}}

{{- define "kubewasm.objectRule" -}}
{{- $parts := splitList "/" (required "objects: a resource is missing" .resource) -}}
{{- dict "apiGroups" (list (eq (len $parts) 3 | ternary (first $parts) "")) "resources" (list (last $parts)) "verbs" .verbs | toJson -}}
{{- end -}}

{{- /* The settings of a Pod that every component has: (dict "root" $ "component" … "values" …). */ -}}
{{- define "kubewasm.pod" -}}
serviceAccountName: {{ include "kubewasm.account" . }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- /* The settings of a Pod of a Deployment. */ -}}
{{- define "kubewasm.deployed" -}}
{{ include "kubewasm.pod" . }}
securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
{{- toYaml .values.topologySpreadConstraints | nindent 0 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  # Each revision is spread by itself, so that a roll ends spread.
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels: {{- include "kubewasm.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubewasm.restricted" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- /* A startup probe that lasts as long as compiling all modules for the first time. */ -}}
{{- define "kubewasm.startup" -}}
periodSeconds: 2, timeoutSeconds: 5, failureThreshold: {{ div (add .startupSeconds 1) 2 }}
{{- end -}}

{{- define "kubewasm.strategy" -}}
type: RollingUpdate
# A new Pod is ready before an old one goes.
rollingUpdate: {maxSurge: {{ .maxSurge }}, maxUnavailable: 0}
{{- end -}}

{{- define "kubewasm.egress" -}}
- ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
  {{- with .root.Values.networkPolicies.dns }}
  to: {{- toYaml . | nindent 2 }}
  {{- end }}
# API servers, and where modules come from.
- ports: [{protocol: TCP, port: 443}, {protocol: TCP, port: 6443}]
{{- with .values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubewasm.binding" -}}
{{- /* (dict "root" $ "component" … "role" "name" "cluster" true "kind" "ClusterRole" "name" "…" "namespace" "…") */ -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty .namespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
- kind: ServiceAccount
  name: {{ include "kubewasm.account" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "kubewasm.disruptions" -}}
{{- if and .values.podDisruptionBudget.enabled (gt (int .values.replicas) 1) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "kubewasm.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  # A Pod that is not ready serves nobody: it does not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "kubewasm.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "kubewasm.networkPolicy" -}}
{{- if .root.Values.networkPolicies.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .pool | empty | ternary (include "kubewasm.name" .) (dig "name" "" (.pool | default dict)) }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
spec:
  podSelector:
    {{- if .pods }}
    {{- toYaml .pods | nindent 4 }}
    {{- else }}
    matchLabels:
      {{- include "kubewasm.selector" . | nindent 6 }}
      {{- with .pool }}
      kubewasm.dev/pool: {{ .pool }}
      {{- end }}
    {{- end }}
  policyTypes: [Ingress, Egress]
  ingress:
  - ports: [{{ range $i, $port := .ports }}{{ if $i }}, {{ end }}{protocol: TCP, port: {{ $port }}}{{ end }}]
    {{- with .values.networkPolicy.from }}
    from: {{- toYaml . | nindent 4 }}
    {{- end }}
  egress: {{- include "kubewasm.egress" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kubewasm.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "kubewasm.account" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "kubewasm.labels" . | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
