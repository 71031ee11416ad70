// Command gpu-environment is a runtime hook that tells a container which of a
// node's GPUs are its own, after Koordinator's hook gpu. A scheduler has picked
// them:
//
//	scheduling.koordinator.sh/device-allocated: '{"gpu": [{"minor": 1}, {"minor": 3}]}'
//
// The NVIDIA runtime reads NVIDIA_VISIBLE_DEVICES, which becomes "1,3". A pod with the
// label koordinator.sh/gpu-isolation-provider HAMi-core and a part of a GPU also has
// a library preloaded that keeps it to that part.
//
// The plugin needs these grants, those from LD_PRELOAD on for HAMi-core alone:
//
//	grants:
//	  env: [NVIDIA_VISIBLE_DEVICES, CUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_SM_LIMIT, LD_PRELOAD]
//	  mounts:
//	  - {source: /usr/local/vgpu/libvgpu.so, destination: /usr/local/vgpu/libvgpu.so}
//	  - {source: /tmp/vgpulock, destination: /tmp/vgpulock, readWrite: true}
//
// Koordinator's hook mounts the library writable, so that one container could
// change the code that runs in all others. Here it is read-only.
//
// An annotation that cannot be read is logged, and the container is created without its GPUs.
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/json"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/log"
)

//kubewasm:reads pod pod_labels[koordinator.sh/gpu-isolation-provider]
//kubewasm:reads pod_annotations[scheduling.koordinator.sh/device-allocated]

const (
	isolationLabel      = "koordinator.sh/gpu-isolation-provider"
	allocatedAnnotation = "scheduling.koordinator.sh/device-allocated"

	memoryRatio = "koordinator.sh/gpu-memory-ratio" // In hundredths of one.
	memoryBytes = "koordinator.sh/gpu-memory"
	core        = "koordinator.sh/gpu-core" // In hundredths of one.
)

// gpu names what HAMi-core needs; the configuration may have other places.
type gpu struct {
	Library string `json:"library"`
	Lock    string `json:"lock"`
}

// device is a GPU, or a part of one.
type device struct {
	Minor     int32                      `json:"minor"`
	Resources map[string]json.RawMessage `json:"resources"`
}

func (v *device) get(name string) (n int64, ok bool, err error) {
	raw, ok := v.Resources[name]
	if !ok {
		return 0, false, nil
	}
	q, err := resource.Parse(strings.Trim(string(raw), `"`))
	if err != nil {
		return 0, false, errors.New(name + " is " + string(raw) + ": " + err.Error())
	}
	return q.Value(), true, nil
}

func (g *gpu) Decide(req *hooks.Request, d *hooks.Decision) error {
	// The environment is fixed when the container is created.
	if req.Level() != abi.LevelContainer || req.Stage() != abi.PreCreateContainer {
		return nil
	}
	text, ok := req.PodAnnotations().Lookup(allocatedAnnotation)
	if !ok {
		return nil
	}
	var allocated struct {
		GPU []device `json:"gpu"`
	}
	if err := json.Unmarshal([]byte(text), &allocated); err != nil {
		unread(req, err)
		return nil
	}
	if len(allocated.GPU) == 0 {
		return nil
	}
	var limits [3]*int64
	for i, name := range [...]string{memoryRatio, memoryBytes, core} {
		n, ok, err := allocated.GPU[0].get(name)
		switch {
		case err != nil:
			unread(req, err)
			return nil
		case ok:
			limits[i] = &n
		}
	}
	var minors []string
	for _, v := range allocated.GPU {
		minors = append(minors, strconv.Itoa(int(v.Minor)))
	}
	d.SetContainerEnv("NVIDIA_VISIBLE_DEVICES", strings.Join(minors, ","))
	if req.PodLabels().Get(isolationLabel) == "HAMi-core" {
		g.isolate(req, limits[0], limits[1], limits[2], d)
	}
	return nil
}

// unread logs an annotation that cannot be read.
func unread(req *hooks.Request, err error) {
	log.Warn("a container is not told of its GPUs: the annotation of its pod cannot be read", "pod", req.Pod().Name(), "annotation", allocatedAnnotation, "err", err)
}

// isolate keeps a container to its part of a GPU. Amounts that the annotation lacks are nil.
func (g *gpu) isolate(req *hooks.Request, ratio, memory, share *int64, d *hooks.Decision) {
	missing := ""
	switch {
	case ratio == nil:
		missing = memoryRatio
	case *ratio >= 100:
		return
	case memory == nil:
		missing = memoryBytes
	}
	if missing != "" {
		log.Warn("a container is not kept to its part of a GPU: the annotation of its pod lacks an amount", "pod", req.Pod().Name(), "annotation", allocatedAnnotation, "amount", missing)
		return
	}
	d.SetContainerEnv("CUDA_DEVICE_MEMORY_LIMIT", strconv.FormatInt(*memory, 10))
	if share != nil {
		d.SetContainerEnv("CUDA_DEVICE_SM_LIMIT", strconv.FormatInt(*share, 10))
	}
	d.SetContainerEnv("LD_PRELOAD", g.Library)
	d.AddContainerMount(hooks.Mount{Destination: g.Library, Type: "bind", Source: g.Library, Options: []string{"bind", "ro"}})
	d.AddContainerMount(hooks.Mount{Destination: g.Lock, Type: "bind", Source: g.Lock, Options: []string{"rbind"}})
}

func init() { hooks.Register(&gpu{Library: "/usr/local/vgpu/libvgpu.so", Lock: "/tmp/vgpulock"}) }

func main() {}
