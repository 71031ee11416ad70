package cases

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// levels are those of a request, by their names.
var levels = map[string]abi.Level{"qos": abi.LevelQOS, "pod": abi.LevelPod, "container": abi.LevelContainer}

// decide asks a hook for a decision on a Pod or one of its containers.
func (q *question) decide() {
	var pod corev1.Pod
	if err := manifest.Decode([]byte(q.suite.read(q, q.of.Pod)), &pod); err != nil {
		q.Fatalf("read Pod: %v", err)
	}
	requests := manifest.HookRequests(&pod)
	i := slices.IndexFunc(requests, func(r *hookmsg.Request) bool { return r.Container.Name == q.of.Container })
	if i < 0 {
		q.Fatalf("the Pod has no container %q", q.of.Container)
	}
	request := requests[i]
	if text := q.suite.read(q, q.of.Node); text != "" {
		var node corev1.Node
		if err := manifest.Decode([]byte(text), &node); err != nil {
			q.Fatalf("read Node: %v", err)
		}
		request.Node = manifest.HookNode(&node)
	}
	if q.of.Level != "" {
		level, ok := levels[q.of.Level]
		if !ok {
			q.Fatalf("level is %q, want qos, pod or container", q.of.Level)
		}
		if request.Level = level; level == abi.LevelQOS {
			request.Stage = abi.Reconcile
		}
	}
	decision, err := q.suite.kits.hook(q).Configure(q, q.config).Ask(q, request)
	if q.wantsError(err) {
		return
	}
	want := map[string]any{}
	q.wanted(&want)
	q.same("decision", canonicalOf(q, want), canonicalOf(q, fieldsOf(decision)))
}

// fieldsOf returns the fields of a decision by their names in hook.proto.
func fieldsOf(d *hookmsg.Decision) map[string]any {
	fields := map[string]any{}
	for f := range d.Fields().All() {
		var v any
		switch {
		case f.Numbers() != 0:
			v = **d.Resources.Number(f)
		case f.Texts() != 0:
			v = **d.Resources.Text(f)
		case f == hookmsg.FieldUnified:
			v = d.Resources.Unified
		case f == hookmsg.FieldContainerAnnotations:
			v = d.ContainerAnnotations
		case f == hookmsg.FieldContainerEnvs:
			v = d.ContainerEnvs
		case f == hookmsg.FieldContainerMounts:
			v = mounts(d.ContainerMounts)
		case f == hookmsg.FieldContainerDevices:
			v = devices(d.ContainerDevices)
		}
		fields[f.String()] = v
	}
	return fields
}

func mounts(list []hookmsg.Mount) (all []map[string]any) {
	for _, m := range list {
		fields := map[string]any{"destination": m.Destination, "source": m.Source, "type": m.Type}
		if len(m.Options) != 0 {
			fields["options"] = m.Options
		}
		all = append(all, fields)
	}
	return all
}

func devices(list []hookmsg.Device) (all []map[string]any) {
	for _, d := range list {
		fields := map[string]any{"path": d.Path, "type": d.Type, "major": d.Major, "minor": d.Minor}
		for name, n := range map[string]*int64{"file_mode": d.FileMode, "uid": d.UID, "gid": d.GID} {
			if n != nil {
				fields[name] = *n
			}
		}
		all = append(all, fields)
	}
	return all
}
