// Command batch-resource is a runtime hook for pods of the class BestEffort that
// run on what the others leave: Kubernetes gives them no requests and limits, so
// annotations have them, for each container by its name:
//
//	batch.kubewasm.dev/cpu.worker: "1500m"
//	batch.kubewasm.dev/memory.worker: "1073741824"
//
// A container gets shares, a quota and a memory limit; the pod gets their sum, if
// each container has one.
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

const (
	cpuPrefix    = "batch.kubewasm.dev/cpu."
	memoryPrefix = "batch.kubewasm.dev/memory."
	period       = 100_000 // Microseconds.
)

func decide(req *hooks.Request, d *hooks.Decision) error {
	if req.QOSClass() != hooks.QOSBestEffort || req.Level() == hooks.LevelQOS {
		return nil
	}
	only := ""
	if req.Level() == hooks.LevelContainer {
		only = req.Container().Name()
	}
	var cpu, memory int64
	var cpus, memories int
	for key, value := range req.PodAnnotations().All() {
		name, isCPU := strings.CutPrefix(key, cpuPrefix)
		isMemory := false
		if !isCPU {
			name, isMemory = strings.CutPrefix(key, memoryPrefix)
		}
		if !isCPU && !isMemory || only != "" && name != only {
			continue
		}
		n, err := amount(value, isCPU)
		if err != nil {
			return errors.New("annotation " + key + ": " + err.Error())
		}
		if isCPU {
			cpu += n
			cpus++
		} else {
			memory += n
			memories++
		}
	}
	if cpus > 0 {
		d.SetCPUShares(min(max(cpu*1024/1000, 2), 262_144))
	}
	// A pod is limited only if all that it has is.
	limited := func(n, other int) bool { return n > 0 && (only != "" || n >= other) }
	if limited(cpus, memories) {
		d.SetCFSPeriod(period)
		d.SetCFSQuota(max(cpu*period/1000, 1000))
	}
	if limited(memories, cpus) {
		d.SetMemoryLimit(memory)
	}
	return nil
}

// amount parses an amount of CPU, "2" or "1500m", as thousandths, or of bytes.
func amount(s string, cpu bool) (int64, error) {
	digits, isMilli := s, false
	if cpu {
		digits, isMilli = strings.CutSuffix(s, "m")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || cpu && n > 1_000_000 {
		return 0, errors.New(strconv.Quote(s) + " is not an amount")
	}
	if cpu && !isMilli {
		n *= 1000
	}
	return n, nil
}

func init() { hooks.Register(hooks.Func(decide)) }

func main() {}
