package host

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Limits bound the resources of one plugin. A zero field means the default.
type Limits struct {
	// MemoryBytes is the maximum size of an instance's linear memory, rounded down to pages of 64
	// KiB. Default 256 MiB: a Go guest needs 4 to 8 MiB, or 20 MB if it remembers 5000 Nodes. The
	// maximum is 4 GiB less one page.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Fuel is the maximum number of WebAssembly instructions in a call. Some instructions that
	// produce no machine code are not counted; bulk operations count by their length. The same call
	// costs the same fuel on every machine. Default 2,000,000,000, about a second; a Filter needs
	// some thousand, the start of a Go guest two million.
	Fuel int64 `json:"fuel,omitempty"`
	// StackBytes is the maximum stack size of nested calls of a guest's functions. The host
	// estimates it from their locals and operands. wazero's stack is about as large; it lies
	// outside of the guest's memory, and is freed after the call. Default 16 MiB, a thousand times
	// the need of a Go guest that reads JSON.
	StackBytes int `json:"stackBytes,omitempty"`
	// Timeout is the maximum duration of a call. It is checked about every millisecond, together
	// with the caller's context. Default 5 s.
	Timeout time.Duration `json:"timeout,omitempty"`
	// BuildTimeout is the maximum time to compile the module, including the wait for other
	// compilations of the Runtime; the caller of Load or Swap waits no longer. A Go guest of 16 MB
	// takes 11 s. After the timeout, the compilation goes on in the background; Compile bounds it.
	// Default 5 min.
	BuildTimeout time.Duration `json:"buildTimeout,omitempty"`
	// Compile is the time that the compiler may take for the module, and for one function of it,
	// beyond the time for any code of that size. It is estimated before the compilation, which
	// cannot be stopped; a module that would take longer is refused. If SHA256 is given, the
	// default is 1 min; otherwise it is 0.8 s and 2 us for each byte of its code, and 5 s for one
	// function. A guest of Go takes a tenth of that, one of TinyGo up to three quarters.
	Compile time.Duration `json:"compile,omitempty"`
	// Instances is the maximum number of instances of the module, and so of concurrent calls.
	// Default GOMAXPROCS.
	Instances int `json:"instances,omitempty"`
	// HeldInstances is the maximum number of additional instances that are held from call to call,
	// see [Hold]. Default 256.
	HeldInstances int `json:"heldInstances,omitempty"`
	// OutputBytes is the maximum number of bytes kept of a guest's output and log lines in one
	// call, and the maximum length of a status reason; the rest is cut off. Default 16 KiB.
	OutputBytes int `json:"outputBytes,omitempty"`
	// ResultBytes is the maximum length of a result that a guest hands to the host. Default 8 MiB;
	// package admission has its own.
	ResultBytes int `json:"resultBytes,omitempty"`
	// LogBytes bounds the lines of the plugin in the host's log, in bytes per minute: the lines
	// logged and printed by the guest, and as many bytes again for the host's lines about single
	// calls, such as traps. The rest is dropped and counted, see [Stats], and the log reports that
	// once a minute. All versions of the plugin share it. Default 1 MiB.
	LogBytes int `json:"logBytes,omitempty"`
	// KeptBytes bounds the data that the host keeps for one call until it ends, over all host
	// functions: questions, answers, lists and results. See [Instance.Keep]. Default 64 MiB, or
	// twice ResultBytes if that is more.
	KeptBytes int `json:"keptBytes,omitempty"`
	// StateEntries and StateBytes bound the state that all instances of the plugin share, see
	// [GrantState]: its entries, and the bytes of their keys and values together. Default 10,000 and
	// 1 MiB.
	StateEntries int `json:"stateEntries,omitempty"`
	StateBytes   int `json:"stateBytes,omitempty"`
}

// DefaultLimits returns the default limits of a plugin. Compile is 0: its default depends on the
// module.
func DefaultLimits() Limits {
	return Limits{
		MemoryBytes:   256 << 20,
		Fuel:          2_000_000_000,
		StackBytes:    16 << 20,
		Timeout:       5 * time.Second,
		BuildTimeout:  5 * time.Minute,
		Instances:     runtime.GOMAXPROCS(0),
		HeldInstances: 256,
		OutputBytes:   16 << 10,
		ResultBytes:   8 << 20,
		LogBytes:      lograte.DefaultBytes,
		KeptBytes:     64 << 20,
		StateEntries:  10_000,
		StateBytes:    1 << 20,
	}
}

// Limits returns the limits of the version that serves new calls, with their defaults.
func (p *Plugin) Limits() Limits { return p.current.Load().limits }

// defaultCompile is the default of Limits.Compile for a module whose SHA256 is given.
const defaultCompile = time.Minute

const pageSize = 64 << 10

// Or returns the limits, with zero ones taken from another set.
func (l Limits) Or(other Limits) Limits {
	return Limits{
		MemoryBytes:   cmp.Or(l.MemoryBytes, other.MemoryBytes),
		Fuel:          cmp.Or(l.Fuel, other.Fuel),
		StackBytes:    cmp.Or(l.StackBytes, other.StackBytes),
		Timeout:       cmp.Or(l.Timeout, other.Timeout),
		BuildTimeout:  cmp.Or(l.BuildTimeout, other.BuildTimeout),
		Compile:       cmp.Or(l.Compile, other.Compile),
		Instances:     cmp.Or(l.Instances, other.Instances),
		HeldInstances: cmp.Or(l.HeldInstances, other.HeldInstances),
		OutputBytes:   cmp.Or(l.OutputBytes, other.OutputBytes),
		ResultBytes:   cmp.Or(l.ResultBytes, other.ResultBytes),
		LogBytes:      cmp.Or(l.LogBytes, other.LogBytes),
		KeptBytes:     cmp.Or(l.KeptBytes, other.KeptBytes),
		StateEntries:  cmp.Or(l.StateEntries, other.StateEntries),
		StateBytes:    cmp.Or(l.StateBytes, other.StateBytes),
	}
}

// maxMemoryBytes is the largest size of a memory: wazero returns 0 as the length of one of
// 4 GiB.
const maxMemoryBytes = 4<<30 - pageSize

func (l Limits) withDefaults() Limits {
	kept := l.KeptBytes
	l = l.Or(DefaultLimits())
	if kept == 0 {
		l.KeptBytes = max(l.KeptBytes, 2*min(l.ResultBytes, math.MaxInt/2))
	}
	l.MemoryBytes = min(l.MemoryBytes, maxMemoryBytes)
	return l
}

// check returns the errors of the limits.
func (l Limits) check(what string) (errs []error) {
	if l.MemoryBytes != 0 && l.MemoryBytes < pageSize {
		errs = append(errs, fmt.Errorf("%s.memoryBytes is %d, less than one page of %d", what, l.MemoryBytes, pageSize))
	}
	if l.MemoryBytes > 4<<30 {
		errs = append(errs, fmt.Errorf("%s.memoryBytes is %d, more than WebAssembly's 4 GiB", what, l.MemoryBytes))
	}
	if l.StackBytes > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("%s.stackBytes is %d, more than %d", what, l.StackBytes, math.MaxInt32))
	}
	for _, limit := range []struct {
		name string
		is   any
		bad  bool
	}{
		{"stackBytes", l.StackBytes, l.StackBytes < 0},
		{"fuel", l.Fuel, l.Fuel < 0},
		{"timeout", l.Timeout, l.Timeout < 0},
		{"buildTimeout", l.BuildTimeout, l.BuildTimeout < 0},
		{"compile", l.Compile, l.Compile < 0},
		{"instances", l.Instances, l.Instances < 0},
		{"heldInstances", l.HeldInstances, l.HeldInstances < 0},
		{"outputBytes", l.OutputBytes, l.OutputBytes < 0},
		{"resultBytes", l.ResultBytes, l.ResultBytes < 0},
		{"logBytes", l.LogBytes, l.LogBytes < 0},
		{"keptBytes", l.KeptBytes, l.KeptBytes < 0},
		{"stateEntries", l.StateEntries, l.StateEntries < 0},
		{"stateBytes", l.StateBytes, l.StateBytes < 0},
	} {
		if limit.bad {
			errs = append(errs, fmt.Errorf("%s.%s is %v, less than 0", what, limit.name, limit.is))
		}
	}
	return errs
}
