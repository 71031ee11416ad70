package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/host"
)

// showHooks creates the cgroups of each Pod's containers in a temporary
// directory, as the kubelet would, and lets the guest change them.
func showHooks(ctx context.Context, out io.Writer, rt *host.Runtime, g *guests, m *manifests) (err error) {
	start := time.Now()
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "cpu-from-annotation", Module: host.ModuleConfig{File: g.hooks}},
		Levels: []abi.Level{abi.LevelContainer},
	}}})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nNODE AGENT, guest cpu-from-annotation, loaded in %s: hook\n\n", round(time.Since(start)))

	root, err := os.MkdirTemp("", "kubewasm-cgroup-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := os.MkdirAll(filepath.Join(root, "cpu"), 0o755); err != nil {
		return err
	}
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, applier.Close()) }()

	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  CONTAINER\tFIRST\tAGAIN\tCGROUP FILE\tFROM\tTO")
	for _, pod := range m.pods {
		for i := range pod.Spec.Containers {
			if err := hook(ctx, t, engine, applier, root, pod, i); err != nil {
				return err
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n  The files are below %s, which is gone now.\n", root)
	return nil
}

// hook calls the guest for one container and applies its decision.
func hook(ctx context.Context, t io.Writer, engine *hooks.Engine, applier *cgroup.Applier, root string, pod *corev1.Pod, i int) error {
	req := &hookmsg.Request{
		Stage:          abi.PreStartContainer,
		Level:          abi.LevelContainer,
		Pod:            hookmsg.PodMeta{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		Container:      hookmsg.ContainerMeta{Name: pod.Spec.Containers[i].Name, ID: "container-" + strconv.Itoa(i)},
		PodLabels:      pod.Labels,
		PodAnnotations: pod.Annotations,
	}
	req.QOSClass = qosClass(pod)
	req.CgroupParent = "kubepods/" + strings.ToLower(req.QOSClass.String()) + "/pod" + string(pod.UID)
	path, err := cgroup.Layout{}.Of(req)
	if err != nil {
		return err
	}
	if err := makeCgroup(filepath.Join(root, "cpu", path), &pod.Spec.Containers[i]); err != nil {
		return err
	}
	var decision *hookmsg.Decision
	var took [2]time.Duration
	for n := range took {
		start := time.Now()
		decision, err = engine.Decide(ctx, req)
		took[n] = time.Since(start)
	}
	fmt.Fprintf(t, "  %s\t%s\t%s", pod.Name+"/"+req.Container.Name, round(took[0]), round(took[1]))
	if err != nil {
		fmt.Fprintf(t, "\trefused: %v\t\t\n", err)
		return nil
	}
	changes, err := applier.Apply(ctx, cgroup.Target{Cgroup: path, Resources: decision.Resources})
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		fmt.Fprint(t, "\tleft as it is\t\t\n")
	}
	for n, change := range changes {
		if n > 0 {
			fmt.Fprint(t, "  \t\t")
		}
		fmt.Fprintf(t, "\t…/%s/%s\t%s\t%s\n", req.Container.ID, filepath.Base(change.File), change.From, change.To)
	}
	return nil
}

// makeCgroup writes the files that the guest may change, with the values that
// the kubelet derives from the container's requests and limits.
func makeCgroup(dir string, c *corev1.Container) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	quota := int64(-1)
	if limit := c.Resources.Limits.Cpu(); !limit.IsZero() {
		quota = max(limit.MilliValue()*100, 1000)
	}
	request, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		request = *c.Resources.Limits.Cpu() // The API server's default.
	}
	shares := max(request.MilliValue()*1024/1000, 2)
	for file, value := range map[string]int64{"cpu.shares": shares, "cpu.cfs_quota_us": quota, "cpu.cfs_period_us": 100_000} {
		if err := os.WriteFile(filepath.Join(dir, file), fmt.Appendln(nil, value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// qosClass is the class that the kubelet would put the Pod into.
func qosClass(pod *corev1.Pod) abi.QOSClass {
	any, guaranteed := false, true
	for _, c := range pod.Spec.Containers {
		any = any || len(c.Resources.Requests) != 0 || len(c.Resources.Limits) != 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			guaranteed = guaranteed && limited && (!requested || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !any:
		return abi.QOSBestEffort
	case guaranteed:
		return abi.QOSGuaranteed
	}
	return abi.QOSBurstable
}
