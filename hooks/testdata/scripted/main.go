// Command scripted is a guest for tests: it does what the pod's annotation with
// the plugin's name says, line by line; about a QoS class, what its
// configuration says of the class or of a directory that its cgroup lies in.
package main

import (
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

//go:wasmimport k8s.io/hooks decision
func hostDecision(ptr unsafe.Pointer, n uint32)

var (
	loops int
	hoard [][]byte
)

type scripted struct {
	// QOS is by the name of the class or of the directory.
	QOS map[string]string `json:"qos"`
}

func (s *scripted) Decide(req *hooks.Request, d *hooks.Decision) error {
	// The first argument is the plugin's name if it is not p. What is for one level only
	// has that in front.
	name := "p"
	if os.Args[0] != "guest.wasm" {
		name = os.Args[0]
	}
	script, ok := req.PodAnnotations().Lookup(name + "/" + req.Level().String())
	if !ok {
		script = req.PodAnnotations().Get(name)
	}
	if req.Level() == abi.LevelQOS && script == "" {
		script = s.QOS[req.QOSClass().String()]
		for dir := range strings.SplitSeq(req.CgroupParent(), "/") {
			script += s.QOS[dir]
		}
	}
	for line := range strings.Lines(script) {
		command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, value, _ := strings.Cut(rest, " ")
		n, _ := strconv.ParseInt(rest, 10, 64)
		switch command {
		case "cpu_shares":
			d.SetCPUShares(n)
		case "cfs_quota_us":
			d.SetCFSQuota(n)
		case "cfs_period_us":
			d.SetCFSPeriod(n)
		case "cpu_burst_us":
			d.SetCPUBurst(n)
		case "cpu_idle":
			d.SetCPUIdle(n != 0)
		case "cpu_bvt":
			d.SetCPUBvt(n)
		case "cpuset_cpus":
			d.SetCPUSet(rest)
		case "cpuset_mems":
			d.SetCPUSetMems(rest)
		case "memory_limit_bytes":
			d.SetMemoryLimit(n)
		case "memory_min_bytes":
			d.SetMemoryMin(n)
		case "memory_low_bytes":
			d.SetMemoryLow(n)
		case "memory_high_bytes":
			d.SetMemoryHigh(n)
		case "oom_score_adj":
			d.SetOOMScoreAdj(n)
		case "net_cls_classid":
			d.SetNetClsClassID(uint32(n))
		case "core_sched_group":
			d.SetCoreSchedGroup(rest)
		case "resctrl_group":
			d.SetResctrlGroup(rest)
		case "resctrl_schemata":
			d.SetResctrlSchemata(rest)
		case "unified":
			unquoted, err := strconv.Unquote(value)
			if err != nil {
				return err
			}
			d.SetUnified(key, unquoted)
		case "divide_unified": // The file, and by how much.
			by, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			// What is not told is not divided.
			if text, ok := req.Resources().Unified().Lookup(key); ok {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return err
				}
				d.SetUnified(key, strconv.FormatInt(n/by, 10))
			}
		case "annotation":
			d.SetContainerAnnotation(key, value)
		case "env":
			d.SetContainerEnv(key, value)
		case "mount":
			// The destination, the source, options and the type.
			m := hooks.Mount{Destination: key, Type: "bind", Options: []string{"ro"}}
			for i, field := range strings.Fields(value) {
				switch i {
				case 0:
					m.Source = field
				case 1:
					m.Options = strings.Split(field, ",")
				case 2:
					m.Type = field
				}
			}
			d.AddContainerMount(m)
		case "device":
			// The path, the type, the numbers and the mode.
			v := hooks.Device{Path: key, Major: 1, Minor: 3}
			for i, field := range strings.Fields(value) {
				switch i {
				case 0:
					v.Type = field
				case 1:
					major, minor, _ := strings.Cut(field, ":")
					v.Major, _ = strconv.ParseInt(major, 10, 64)
					v.Minor, _ = strconv.ParseInt(minor, 10, 64)
				case 2:
					mode, err := strconv.ParseInt(field, 8, 64)
					if err != nil {
						return err
					}
					v.FileMode = &mode
				}
			}
			d.AddContainerDevice(v)
		case "sees":
			// What of the request travels.
			d.SetContainerAnnotation("sees", req.Pod().Name()+" "+req.Container().Name()+" "+strconv.Itoa(req.ContainerEnvs().Len())+" "+req.CgroupParent())
		case "divide_quota":
			if quota, ok := req.Resources().CFSQuota(); ok && quota > 0 {
				d.SetCFSQuota(quota / n)
			}
		case "stage":
			d.SetContainerAnnotation("stage", req.Stage().String()+" "+req.Level().String())
		case "bytes":
			// Past the SDK: a guest may hand the host anything.
			raw, err := hex.DecodeString(rest)
			if err != nil {
				return err
			}
			hostDecision(unsafe.Pointer(unsafe.SliceData(raw)), uint32(len(raw)))
		case "lots":
			raw := make([]byte, n)
			hostDecision(unsafe.Pointer(unsafe.SliceData(raw)), uint32(len(raw)))
		case "outside":
			var b [8]byte
			hostDecision(unsafe.Add(unsafe.Pointer(&b), 1<<30), 8)
		case "error":
			return errors.New(rest)
		case "loop":
			for {
				loops++
			}
		case "hog":
			for {
				hoard = append(hoard, make([]byte, 1<<20))
			}
		case "panic":
			panic(rest)
		default:
			return errors.New("no such command: " + line)
		}
	}
	return nil
}

func init() { hooks.Register(&scripted{}) }

func main() {}
