// Command cpu-from-annotation is a runtime hook that gives the containers of a
// pod the CPU that the pod's annotation asks for:
//
//	kubewasm.dev/cpu: "1500m"
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

const (
	annotation = "kubewasm.dev/cpu"
	period     = 100_000 // Microseconds.
)

type cpuFromAnnotation struct{}

func (cpuFromAnnotation) Decide(req *hooks.Request, d *hooks.Decision) error {
	cpu, ok := req.PodAnnotations().Lookup(annotation)
	if !ok || req.Level() != abi.LevelContainer {
		return nil
	}
	milli, err := parseMilli(cpu)
	if err != nil {
		return err
	}
	shares := milli * 1024 / 1000
	if req.QOSClass() == abi.QOSBestEffort {
		shares = 2 // Up to the quota, but only of CPU that others leave.
	}
	// The kernel takes 2 to 262144 shares and quotas from 1000 on.
	d.SetCPUShares(min(max(shares, 2), 262_144))
	d.SetCFSPeriod(period)
	d.SetCFSQuota(max(milli*period/1000, 1000))
	return nil
}

// parseMilli parses an amount of CPU, "2" or "1500m", as thousandths of a CPU.
func parseMilli(cpu string) (int64, error) {
	digits, isMilli := strings.CutSuffix(cpu, "m")
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("annotation " + annotation + " is " + strconv.Quote(cpu) + `, want an amount of CPU like "2" or "1500m"`)
	}
	if !isMilli {
		n *= 1000
	}
	return int64(n), nil
}

func init() { hooks.Register(cpuFromAnnotation{}) }

func main() {}
