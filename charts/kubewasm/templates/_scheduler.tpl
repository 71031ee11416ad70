{{- define "kubewasm.scheduler.cacheSize" -}}
{{- include "kubewasm.cacheSize" (dict "component" "scheduler" "size" .Values.scheduler.cache.size "modules" (len .Values.scheduler.plugins) "least" 64) -}}
{{- end -}}

{{- /* Whether the scheduler has a certificate that Prometheus can verify. Otherwise it makes one
of its own in memory. */ -}}
{{- define "kubewasm.scheduler.certificate" -}}
{{- if or .Values.monitoring.enabled .Values.certificates.existing.scheduler -}}true{{- end -}}
{{- end -}}

{{- define "kubewasm.scheduler.configuration" -}}
{{- $v := .Values.scheduler -}}
{{- $enabled := list -}}
{{- $pluginConfig := list -}}
{{- range include "kubewasm.plugins" (dict "plugins" $v.plugins "of" "scheduler.plugins" "native" list "namespace" .Release.Namespace) | fromJsonArray -}}
{{- if hasKey (.args | default dict) "module" -}}
{{- fail (printf "scheduler.plugins: %s: the module is named by module beside args, not by args.module" .name) -}}
{{- end -}}
{{- $point := dict "name" .name -}}
{{- with .weight -}}{{- $_ := set $point "weight" . -}}{{- end -}}
{{- $enabled = append $enabled $point -}}
{{- $args := set (deepCopy (.args | default dict)) "module" .module -}}
{{- $pluginConfig = append $pluginConfig (dict "name" .name "args" $args) -}}
{{- end -}}
{{- range $v.clusterPlugins -}}
{{- $own := . -}}
{{- range $v.plugins -}}{{- if eq .name $own.name -}}{{- fail (printf "scheduler.clusterPlugins: %s: scheduler.plugins has it, too" .name) -}}{{- end -}}{{- end -}}
{{- $enabled = append $enabled (pick . "name" "weight") -}}
{{- $pluginConfig = append $pluginConfig (dict "name" .name "args" (set (pick . "failurePolicy") "cluster" true)) -}}
{{- end -}}
{{- $profile := deepCopy $v.profile -}}
{{- $_ := set $profile "schedulerName" $v.schedulerName -}}
{{- if $enabled -}}
{{- $plugins := $profile.plugins | default dict -}}
{{- $multiPoint := $plugins.multiPoint | default dict -}}
{{- $_ := set $multiPoint "enabled" (concat ($multiPoint.enabled | default list) $enabled) -}}
{{- $_ := set $plugins "multiPoint" $multiPoint -}}
{{- $_ := set $profile "plugins" $plugins -}}
{{- $_ := set $profile "pluginConfig" (concat ($profile.pluginConfig | default list) $pluginConfig) -}}
{{- end -}}
{{- $leader := dict "leaderElect" true "resourceLock" "leases" "resourceName" (include "kubewasm.name" (dict "root" . "component" "scheduler")) "resourceNamespace" .Release.Namespace -}}
{{- $own := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "leaderElection" $leader "profiles" (list $profile) -}}
{{- toYaml (mergeOverwrite (deepCopy $v.configuration) $own) -}}
{{- end -}}
