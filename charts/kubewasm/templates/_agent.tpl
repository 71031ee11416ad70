{{- /* The pools, in JSON: a DaemonSet each. */ -}}
{{- define "kubewasm.agent.pools" -}}
{{- $pools := list -}}
{{- $names := dict -}}
{{- $selectors := dict -}}
{{- range .Values.agent.pools -}}
{{- if hasKey $names .name -}}{{- fail (printf "agent.pools: there are two pools %s" .name) -}}{{- end -}}
{{- $_ := set $names .name true -}}
{{- $where := toJson (list .nodeSelector .affinity) -}}
{{- if hasKey $selectors $where -}}
{{- fail (printf "agent.pools: %s and %s select the same nodes: a node has one agent" (get $selectors $where) .name) -}}
{{- end -}}
{{- $_ := set $selectors $where .name -}}
{{- $pools = append $pools (include "kubewasm.agent.pool" (dict "root" $ "pool" .) | fromJson) -}}
{{- end -}}
{{- if not $pools -}}
{{- $pools = list (include "kubewasm.agent.pool" (dict "root" $ "pool" (dict "name" "")) | fromJson) -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}

{{- /* A pool with all that follows from its configuration. */ -}}
{{- define "kubewasm.agent.pool" -}}
{{- $v := .root.Values.agent -}}
{{- $name := include "kubewasm.name" (dict "root" .root "component" "agent") -}}
{{- $plugins := hasKey .pool "plugins" | ternary .pool.plugins $v.plugins | default list -}}
{{- $of := .pool.name | empty | ternary "agent.plugins" (printf "agent.pools: %s: plugins" .pool.name) -}}
{{- $config := include "kubewasm.overlay" (dict "base" $v.configuration "over" (.pool.configuration | default dict)) | fromJson -}}
{{- range $key := list "cacheDir" "cacheBytes" "hostRoot" "http" "registries" "plugins" "follow" -}}
{{- if hasKey $config $key -}}{{- fail (printf "agent.configuration.%s: the chart fills it in from other values" $key) -}}{{- end -}}
{{- end -}}
{{- if not (or (hasKey $config "standalone") (hasKey $config "nri") (hasKey $config "runtimeHook")) -}}
{{- fail "agent.configuration has none of standalone, nri and runtimeHook" -}}
{{- end -}}
{{- $standalone := $config.standalone | default dict -}}
{{- if and $v.kubeletCertificate (hasKey $standalone "kubelet") -}}
{{- $_ := set $standalone.kubelet "caFile" "/kubelet/kubelet.crt" -}}
{{- end -}}
{{- $pid := false -}}
{{- $resctrl := false -}}
{{- $root := false -}}
{{- $score := false -}}
{{- $cores := false -}}
{{- range $plugins -}}
{{- $grants := .decisionGrants | default dict -}}
{{- range .owns -}}
{{- if has . (list "oom_score_adj" "core_sched_group" "resctrl_group") -}}{{- $pid = true -}}{{- end -}}
{{- if eq . "resctrl_group" -}}{{- $resctrl = true -}}{{- end -}}
{{- if eq . "oom_score_adj" -}}{{- $score = true -}}{{- end -}}
{{- if eq . "core_sched_group" -}}{{- $cores = true -}}{{- end -}}
{{- end -}}
{{- if hasKey $grants "oomScoreAdj" -}}{{- $pid = true -}}{{- $score = true -}}{{- end -}}
{{- if $grants.resctrl -}}{{- $resctrl = true -}}{{- $pid = true -}}{{- end -}}
{{- if or $grants.mounts $grants.devices -}}{{- $root = true -}}{{- end -}}
{{- end -}}
{{- $network := or (hasKey $standalone "kubelet") (dig "failClosed" false ($config.nri | default dict)) -}}
{{- if not (kindIs "invalid" $v.hostNetwork) -}}{{- $network = $v.hostNetwork -}}{{- end -}}
{{- if not (kindIs "invalid" $v.hostPID) -}}{{- $pid = $v.hostPID -}}{{- end -}}
{{- if not (kindIs "invalid" $v.resctrl) -}}{{- $resctrl = $v.resctrl -}}{{- end -}}
{{- if not (kindIs "invalid" $v.hostRoot) -}}{{- $root = $v.hostRoot -}}{{- end -}}
{{- /* Files of a process belong to its user, a score is lowered by SYS_RESOURCE, and core scheduling
asks as ptrace does. Cgroups and resctrl belong to root, who needs no capability for them. */ -}}
{{- $capabilities := list -}}
{{- if $score -}}{{- $capabilities = list "DAC_OVERRIDE" "SYS_RESOURCE" -}}{{- end -}}
{{- if $cores -}}{{- $capabilities = append $capabilities "SYS_PTRACE" -}}{{- end -}}
{{- if not (kindIs "invalid" $v.capabilities) -}}{{- $capabilities = $v.capabilities -}}{{- end -}}
{{- $size := include "kubewasm.cacheSize" (dict "component" "agent" "size" $v.cache.size "modules" (len $plugins) "least" 64) -}}
{{- $_ := set $config "cacheDir" (printf "%s/modules" $v.cachePath) -}}
{{- $_ := set $config "cacheBytes" (div (mul 3 (include "kubewasm.bytes" $size | int64)) 4) -}}
{{- $_ := set $config "http" (dict "address" (printf ":%d" (int $v.port)) "state" $v.state) -}}
{{- $_ := set $config "follow" $v.follow -}}
{{- if $root -}}{{- $_ := set $config "hostRoot" "/host" -}}{{- end -}}
{{- if .root.Values.registries.enabled -}}
{{- $_ := set $config "registries" (include "kubewasm.registries" (dict "root" .root "dir" (printf "%s/artifacts" $v.cachePath) "size" $size) | fromJson) -}}
{{- end -}}
{{- $_ := set $config "plugins" (include "kubewasm.plugins" (dict "plugins" $plugins "of" $of "native" list "namespace" .root.Release.Namespace) | fromJsonArray) -}}
{{- if and (not $plugins) (not (hasKey $config "cluster")) -}}{{- fail (printf "%s: there are no plugins, and an agent does not start without" $of) -}}{{- end -}}
{{- /* Directories of the node beside the cgroups, by their paths. */ -}}
{{- $dirs := dict -}}
{{- if hasKey $config "nri" -}}
{{- $_ := set $dirs "nri" (dir (dig "socket" "/var/run/nri/nri.sock" ($config.nri | default dict))) -}}
{{- end -}}
{{- with $standalone.cri -}}{{- $_ := set $dirs "cri" (trimPrefix "unix://" . | dir) -}}{{- end -}}
{{- with $config.runtimeHook -}}
{{- $_ := set $dirs "hooks" (dir (required "agent.configuration.runtimeHook.socket is missing" .socket)) -}}
{{- with .registration -}}{{- $_ := set $dirs "registration" (dir .) -}}{{- end -}}
{{- end -}}
{{- $token := or (hasKey $standalone "kubelet") (hasKey $config "node") (hasKey $config "events") (hasKey $config "cluster") -}}
{{- dict "name" (.pool.name | empty | ternary $name (printf "%s-%s" $name .pool.name)) "pool" (default "all" .pool.name)
    "config" $config "plugins" $plugins "network" $network "pid" $pid "resctrl" $resctrl "root" $root "capabilities" $capabilities "dirs" $dirs "token" $token
    "kubelet" (hasKey $standalone "kubelet")
    "nodeSelector" (merge (dict) (.pool.nodeSelector | default dict) (hasKey .pool "nodeSelector" | ternary dict $v.nodeSelector) (dict "kubernetes.io/os" "linux"))
    "affinity" (hasKey .pool "affinity" | ternary .pool.affinity $v.affinity | default dict)
    "tolerations" (hasKey .pool "tolerations" | ternary .pool.tolerations $v.tolerations)
    "resources" (hasKey .pool "resources" | ternary .pool.resources $v.resources)
    "maxUnavailable" (hasKey .pool "maxUnavailable" | ternary .pool.maxUnavailable $v.maxUnavailable)
    | toJson -}}
{{- end -}}

{{- /* No two agents on a node, of whatever release: cgroups have one writer. */ -}}
{{- define "kubewasm.agent.affinity" -}}
{{- $affinity := deepCopy .affinity -}}
{{- $anti := $affinity.podAntiAffinity | default dict -}}
{{- $own := dict "topologyKey" "kubernetes.io/hostname" "namespaceSelector" dict "labelSelector" (dict "matchLabels" (dict "kubewasm.dev/agent" "true")) -}}
{{- $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" (append ($anti.requiredDuringSchedulingIgnoredDuringExecution | default list) $own) -}}
{{- toYaml (set $affinity "podAntiAffinity" $anti) -}}
{{- end -}}

{{- /* A mapping with the members of another in their place; null removes a member. Values of helm
do that themselves, but not within lists. */ -}}
{{- define "kubewasm.overlay" -}}
{{- $result := deepCopy .base -}}
{{- range $key, $value := .over -}}
{{- $before := get $result $key -}}
{{- if kindIs "invalid" $value -}}
{{- $result = omit $result $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $before) -}}
{{- $_ := set $result $key (include "kubewasm.overlay" (dict "base" $before "over" $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}
