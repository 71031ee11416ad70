{{- define "scheduler.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "scheduler.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "scheduler.labels" -}}
{{ include "scheduler.selector" . }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "scheduler.serviceAccount" -}}
{{- default (include "scheduler.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* A scheduler may be one minor older than the API server, and not newer. The oldest
and the newest minor for which there is a scheduler stand here. */ -}}
{{- define "scheduler.tag" -}}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor | int -}}
{{- default (printf "%s-1.%d" .Chart.AppVersion (max 35 (min $minor 38))) .Values.image.tag -}}
{{- end -}}

{{- /* The file of a plugin, where its volume is mounted. */ -}}
{{- define "scheduler.file" -}}
{{- $module := .module | default dict -}}
{{- if ne (len (keys (pick $module "file" "configMap" "image" "https" "oci"))) 1 -}}
{{- fail (printf "plugins: %s: module needs one of file, configMap, image, https and oci" .name) -}}
{{- end -}}
{{- with $module.file -}}{{ . }}{{- end -}}
{{- with $module.configMap -}}/etc/kubewasm/modules/{{ $.name }}/{{ required (printf "plugins: %s: module.configMap.key is missing" $.name) .key }}{{- end -}}
{{- with $module.image -}}/etc/kubewasm/modules/{{ $.name }}/{{ required (printf "plugins: %s: module.image.path is missing" $.name) .path | trimPrefix "/" }}{{- end -}}
{{- end -}}

{{- define "scheduler.configuration" -}}
{{- $enabled := list -}}
{{- $pluginConfig := list -}}
{{- range .Values.plugins -}}
{{- $name := required "plugins: a name is missing" .name -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$" $name) -}}
{{- fail (printf "plugins: the name %q is not a DNS label of at most 52 characters" $name) -}}
{{- end -}}
{{- if hasKey (.args | default dict) "module" -}}
{{- fail (printf "plugins: %s: the module is named by module beside args, not by args.module" $name) -}}
{{- end -}}
{{- $point := dict "name" $name -}}
{{- with .weight -}}{{- $_ := set $point "weight" . -}}{{- end -}}
{{- $enabled = append $enabled $point -}}
{{- $args := deepCopy (.args | default dict) -}}
{{- $file := include "scheduler.file" . -}}
{{- $module := deepCopy (omit .module "configMap" "image") -}}
{{- with $file -}}{{- $_ := set $module "file" . -}}{{- end -}}
{{- $_ := set $args "module" $module -}}
{{- $pluginConfig = append $pluginConfig (dict "name" $name "args" $args) -}}
{{- end -}}
{{- $profile := deepCopy .Values.profile -}}
{{- $_ := set $profile "schedulerName" .Values.schedulerName -}}
{{- if $enabled -}}
{{- $plugins := $profile.plugins | default dict -}}
{{- $multiPoint := $plugins.multiPoint | default dict -}}
{{- $_ := set $multiPoint "enabled" (concat ($multiPoint.enabled | default list) $enabled) -}}
{{- $_ := set $plugins "multiPoint" $multiPoint -}}
{{- $_ := set $profile "plugins" $plugins -}}
{{- $_ := set $profile "pluginConfig" (concat ($profile.pluginConfig | default list) $pluginConfig) -}}
{{- end -}}
{{- $leader := dict "leaderElect" true "resourceLock" "leases" "resourceName" (include "scheduler.fullname" .) "resourceNamespace" .Release.Namespace -}}
{{- $own := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "leaderElection" $leader "profiles" (list $profile) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.configuration) $own) -}}
{{- end -}}
