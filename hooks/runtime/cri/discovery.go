package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// Config configures a Discovery.
type Config struct {
	// Endpoint is the address of the runtime's socket. Default
	// unix:///run/containerd/containerd.sock.
	Endpoint string
	// Layout locates the cgroups, as for the reconciler.
	Layout cgroup.Layout
	// Timeout bounds the time of each answer. Default 5 s.
	Timeout time.Duration
}

// Discovery is a [standalone.Discovery]. Close it after use.
type Discovery struct {
	cfg    Config
	conn   *grpc.ClientConn
	client runtimeapi.RuntimeServiceClient
}

var _ standalone.Discovery = (*Discovery)(nil)

// maxAnswer is the maximum length of an answer: the limit of the kubelet's client.
const maxAnswer = 16 << 20

// New returns a Discovery. The Discovery connects on the first use, and again after a restart of
// the runtime.
func New(cfg Config) (*Discovery, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = "unix:///run/containerd/containerd.sock"
	}
	if !strings.Contains(cfg.Endpoint, "://") {
		cfg.Endpoint = "unix://" + cfg.Endpoint
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	conn, err := grpc.NewClient(cfg.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	return &Discovery{cfg: cfg, conn: conn, client: runtimeapi.NewRuntimeServiceClient(conn)}, nil
}

// Close closes the connection.
func (d *Discovery) Close() error { return d.conn.Close() }

// Pods lists the sandboxes that are ready, with their containers that have not ended.
//
// The class comes from the cgroup, if the runtime reports that: from the kubelet's configuration of
// the sandbox or from the path in its OCI specification. It never comes from an annotation, which
// the pod's author may have written. The reconciler checks the class.
//
// The resources of a container are those requested by the kubelet at its creation, for fields that
// the runtime still has unchanged. If a field has changed, either the kubelet has requested another
// value or an NRI plugin has changed it. These cases cannot be distinguished, so the field is
// unknown: a plugin that divides a quota must not divide its result again. Only containerd reports
// the request; for other runtimes the resources are the current ones. The kubelet's pods endpoint
// has all of them.
//
// The environment of a container is the complete environment at the start of its process, from its
// OCI specification. It includes the variables of the image, values from elsewhere, and additions
// of NRI plugins.
func (d *Discovery) Pods(ctx context.Context) ([]standalone.Pod, error) {
	pods, err := d.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover pods: cri: %w", err)
	}
	return pods, nil
}

func (d *Discovery) pods(ctx context.Context) ([]standalone.Pod, error) {
	call := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
		defer cancel()
		return f(ctx)
	}
	var sandboxes *runtimeapi.ListPodSandboxResponse
	var containers *runtimeapi.ListContainersResponse
	err := call(func(ctx context.Context) (err error) {
		sandboxes, err = d.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		})
		if err != nil {
			return err
		}
		containers, err = d.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var pods []standalone.Pod
	at := map[string]int{}
	for _, s := range sandboxes.GetItems() {
		if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		pod := standalone.Pod{
			Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(),
			Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		}
		var status *runtimeapi.PodSandboxStatusResponse
		err := call(func(ctx context.Context) (err error) {
			status, err = d.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
			return err
		})
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pod.Cgroup = podCgroup(d.cfg.Layout, status.GetInfo())
		// A cgroup outside of the pod has no class, and the reconciler refuses it.
		pod.QOSClass, _ = d.cfg.Layout.CheckPod(hookmsg.PodMeta{UID: pod.UID}, pod.Cgroup)
		at[s.GetId()] = len(pods)
		pods = append(pods, pod)
	}
	for _, c := range containers.GetContainers() {
		i, ok := at[c.GetPodSandboxId()]
		if !ok || c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		container := standalone.Container{ID: c.GetId(), Name: c.GetMetadata().GetName(), Annotations: c.GetAnnotations()}
		var status *runtimeapi.ContainerStatusResponse
		err := call(func(ctx context.Context) (err error) {
			status, err = d.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
			return err
		})
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		container.Resources, container.Inferred = resources(status.GetStatus().GetResources().GetLinux()), true
		info := containerInfo(status.GetInfo())
		if asked := info.Config.Linux.Resources; asked != nil {
			keepEqual(container.Resources, resources(asked))
		}
		// As in NRI: the additions of the runtime, and those of the image.
		container.Annotations = merged(info.RuntimeSpec.Annotations, container.Annotations)
		for _, env := range info.RuntimeSpec.Process.Env {
			name, value, _ := strings.Cut(env, "=")
			container.Envs = append(container.Envs, hookmsg.Env{Name: name, Value: value})
		}
		pods[i].Containers = append(pods[i].Containers, container)
	}
	return pods, errors.Join(ctx.Err())
}

// isGone reports whether the listed object has ended since.
func isGone(err error) bool { return status.Code(err) == codes.NotFound }

// podCgroup finds the pod's cgroup in the verbose information of containerd and CRI-O, since no
// field of the interface has it. containerd reports the kubelet's configuration. Both report the
// path of the sandbox's cgroup, which lies in the pod's. podCgroup returns an empty path if the
// information has neither.
func podCgroup(layout cgroup.Layout, info map[string]string) string {
	var verbose struct {
		Config struct {
			Linux struct {
				CgroupParent string `json:"cgroup_parent"`
			} `json:"linux"`
		} `json:"config"`
		RuntimeSpec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &verbose); err != nil {
		return ""
	}
	if parent := verbose.Config.Linux.CgroupParent; parent != "" {
		return layout.Parent(parent)
	}
	own := layout.Path(verbose.RuntimeSpec.Linux.CgroupsPath)
	if i := strings.LastIndexByte(own, '/'); i > 0 {
		return own[:i]
	}
	return ""
}

// verbose is the part used from the verbose information of containerd and CRI-O about a container.
type verbose struct {
	// Config is the kubelet's configuration, which only containerd reports.
	Config struct {
		Linux struct {
			Resources *runtimeapi.LinuxContainerResources `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	RuntimeSpec struct {
		Annotations map[string]string `json:"annotations"`
		Process     struct {
			Env []string `json:"env"`
		} `json:"process"`
	} `json:"runtimeSpec"`
}

func containerInfo(info map[string]string) (v verbose) {
	if err := json.Unmarshal([]byte(info["info"]), &v); err != nil {
		return verbose{}
	}
	return v
}

// merged returns base with the entries of top.
func merged(base, top map[string]string) map[string]string {
	if len(base) == 0 {
		return top
	}
	m := maps.Clone(base)
	maps.Copy(m, top)
	return m
}

// keepEqual sets fields of r to nil if they differ from those in asked.
func keepEqual(r, asked *hookmsg.Resources) {
	if r == nil {
		return
	}
	for _, f := range []struct{ is, was **int64 }{
		{&r.CPUShares, &asked.CPUShares}, {&r.CFSQuotaUS, &asked.CFSQuotaUS}, {&r.CFSPeriodUS, &asked.CFSPeriodUS},
		{&r.MemoryLimitBytes, &asked.MemoryLimitBytes}, {&r.OOMScoreAdj, &asked.OOMScoreAdj},
	} {
		keepIfEqual(f.is, *f.was)
	}
	keepIfEqual(&r.CPUSetCPUs, asked.CPUSetCPUs)
	keepIfEqual(&r.CPUSetMems, asked.CPUSetMems)
	if !maps.Equal(r.Unified, asked.Unified) {
		r.Unified = nil
	}
}

func keepIfEqual[T comparable](is **T, was *T) {
	if *is != nil && (was == nil || **is != *was) {
		*is = nil
	}
}

// resources converts the resources held by the runtime; 0 means not specified.
func resources(l *runtimeapi.LinuxContainerResources) *hookmsg.Resources {
	if l == nil {
		return nil
	}
	r := &hookmsg.Resources{Unified: l.GetUnified()}
	for _, f := range []struct {
		into **int64
		v    int64
	}{
		{&r.CPUShares, l.GetCpuShares()}, {&r.CFSQuotaUS, l.GetCpuQuota()}, {&r.CFSPeriodUS, l.GetCpuPeriod()},
		{&r.MemoryLimitBytes, l.GetMemoryLimitInBytes()}, {&r.OOMScoreAdj, l.GetOomScoreAdj()},
	} {
		if f.v != 0 {
			*f.into = &f.v
		}
	}
	if cpus := l.GetCpusetCpus(); cpus != "" {
		r.CPUSetCPUs = &cpus
	}
	if mems := l.GetCpusetMems(); mems != "" {
		r.CPUSetMems = &mems
	}
	return r
}
