package host

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Config says which module a plugin is, what it is allowed, and what the host
// offers it.
type Config struct {
	// Name is the plugin's name in logs, errors and metrics, in UTF-8. Required.
	Name string
	// Source is where the module comes from. Required.
	Source Source
	// SHA256 is the digest that the module must have, in hexadecimal; empty
	// means any. It is checked before anything is parsed.
	SHA256 string
	// Guest is the plugin's own configuration, JSON by convention, which a
	// guest reads with kubewasm.config. It may be empty, and must not change as long
	// as the plugin is open.
	Guest []byte
	// Args are the arguments that the guest finds, as os.Args of a program has them, the
	// name first. Empty means Name alone. They must not change either. A program of a
	// [Dialect] gets those of [Instance.Run] instead.
	Args []string
	// Grants name what the guest may use beyond its arguments: [GrantClock],
	// [GrantRandom], and those that Imports ask for.
	Grants []string
	// Observer is told of calls, builds and resets; nil costs nothing.
	Observer Observer
	// Reset says when an instance begins anew.
	Reset Reset
	// Disable says when a plugin that keeps failing is taken out of service.
	Disable Disable
	// Limits bound what the guest may use; the zero value is the default.
	Limits Limits
	// Logger receives what the guest logs and prints; nil drops it.
	Logger *slog.Logger

	// Kind is the kind of extension that the caller can serve. A guest that
	// implements no function of it is refused.
	Kind abi.Kind
	// Imports are the functions that the caller offers beside the common ones.
	Imports []Import
	// Dialects are the other ABIs that the caller serves. A module that is of none
	// of them, or exports [abi.Marker], is a guest of package abi.
	Dialects []Dialect
	// Probe is asked about the first instance of each version before the version
	// serves: an error refuses it. The instance is reset afterwards. nil asks
	// nobody.
	Probe func(ctx context.Context, inst *Instance) error
	// NewState makes what [Instance.State] returns, once for each instance; nil
	// leaves it nil.
	NewState func() any
}

// The grants that every host knows. A guest may import the WASI functions for
// time and random numbers without them, and gets fakes: a clock that advances by
// a nanosecond with each instruction, the same random numbers in each instance.
const (
	// GrantClock gives a guest the real time.
	GrantClock = "clock"
	// GrantRandom gives a guest the random numbers of the operating system. What
	// a guest drew while it started is in the snapshot, and so the same for all
	// instances.
	GrantRandom = "random"
)

// Reset says when an instance begins anew from the snapshot that was taken after
// the start of the first one.
type Reset uint8

const (
	// ResetOnError resets an instance whose guest trapped or was stopped. An
	// instance that cannot be reset, since its memory has grown, is replaced.
	ResetOnError Reset = iota
	// ResetPerCall resets an instance whenever it is released: no call sees what
	// an earlier one left in memory.
	ResetPerCall
	// ResetNever replaces an instance whose guest trapped by one that is started
	// from the beginning.
	ResetNever
)

// Limits bound what one plugin may use. A zero field means the default.
type Limits struct {
	// MemoryBytes is the most linear memory that an instance may have, rounded
	// down to pages of 64 KiB. Default 256 MiB: a Go guest lives in 4 to 8 MiB,
	// or in 20 MB if it remembers 5000 Nodes. Of 4 GiB, the most that WebAssembly has,
	// the last page cannot be had.
	MemoryBytes uint64
	// Fuel is how many WebAssembly instructions a call may execute, give or take
	// those that leave nothing behind in machine code; bulk operations count by
	// their length. The same call costs the same fuel on every machine. Default
	// 2,000,000,000, about a second; a Filter needs some thousand, the start of
	// a Go guest two million.
	Fuel int64
	// StackBytes is how much stack a guest's functions may take that call one
	// another, as the host estimates it from their locals and operands: what
	// wazero takes is of the same size, and lies outside of the guest's memory. It
	// is Go's again after the call.
	// Default 16 MiB, a thousand times what a Go guest takes to read JSON.
	StackBytes int
	// Timeout is how long a call may take. It is looked at once in about a
	// millisecond, together with the caller's context. Default 5 s.
	Timeout time.Duration
	// BuildTimeout is how long the module may take to compile, the wait for other
	// compilations of the Runtime included; the caller of Load or Swap waits no
	// longer. A Go guest of 16 MB takes 11 s. What has begun goes
	// on in the background to the end of the function that is being compiled.
	// Default 5 min.
	BuildTimeout time.Duration
	// Compile is how long the compiler may take for the module, and for one function
	// of it, beyond what any code of that size takes. It is estimated before the module
	// is compiled, which nothing can stop within a function: a module that would take
	// longer is refused. Default, for a module whose SHA256 is given, [DefaultCompile];
	// for any other 0.8 s and 2 us for each byte of its code, and 5 s for one
	// function. A guest of Go takes a tenth of that, one of TinyGo up to three quarters.
	Compile time.Duration
	// Instances is how many instances of the module there may be, which is how
	// many calls run at the same time. Default GOMAXPROCS.
	Instances int
	// HeldInstances is how many instances there may be beside that are held from call
	// to call, see [Hold]. Default 256.
	HeldInstances int
	// OutputBytes is how much of what a guest prints or logs in one call is
	// kept, and how long a status reason may be; the rest is cut off. Default
	// 16 KiB.
	OutputBytes int
	// ResultBytes is the longest result that a guest may hand to the host.
	// Default 8 MiB; package admission has its own.
	ResultBytes int
}

// The defaults of Limits.
const (
	DefaultFuel          = 2_000_000_000
	DefaultStackBytes    = 16 << 20
	DefaultTimeout       = 5 * time.Second
	DefaultBuildTimeout  = 5 * time.Minute
	DefaultCompile       = time.Minute // Of a module whose SHA256 is given.
	DefaultMemoryBytes   = 256 << 20
	DefaultHeldInstances = 256
	DefaultOutputBytes   = 16 << 10
	DefaultResultBytes   = 8 << 20
)

const pageSize = 64 << 10

// or returns the limits with those that are zero taken from another set.
func (l Limits) or(other Limits) Limits {
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
	}
}

// maxMemoryBytes is the most that a memory may have: wazero gives the length of one of all
// 4 GiB as 0.
const maxMemoryBytes = 4<<30 - pageSize

func (l Limits) withDefaults() Limits {
	l = l.or(Limits{
		MemoryBytes:   DefaultMemoryBytes,
		Fuel:          DefaultFuel,
		StackBytes:    DefaultStackBytes,
		Timeout:       DefaultTimeout,
		BuildTimeout:  DefaultBuildTimeout,
		Instances:     runtime.GOMAXPROCS(0),
		HeldInstances: DefaultHeldInstances,
		OutputBytes:   DefaultOutputBytes,
		ResultBytes:   DefaultResultBytes,
	})
	l.MemoryBytes = min(l.MemoryBytes, maxMemoryBytes)
	return l
}

// check returns what is wrong with the limits.
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
	} {
		if limit.bad {
			errs = append(errs, fmt.Errorf("%s.%s is %v, less than 0", what, limit.name, limit.is))
		}
	}
	return errs
}

// Validate reports every mistake of the configuration at once, as Load does, for
// callers that have mistakes of their own to report beside.
func (c Config) Validate() error { return c.validate() }

// validate reports every mistake of the configuration at once.
func (c *Config) validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("name is empty"))
	}
	if !utf8.ValidString(c.Name) {
		errs = append(errs, fmt.Errorf("name %q is not UTF-8", c.Name))
	}
	if err := checkSource(c.Source, c.SHA256); err != nil {
		errs = append(errs, err)
	}
	if c.SHA256 != "" {
		if digest, err := hex.DecodeString(c.SHA256); err != nil || len(digest) != 32 {
			errs = append(errs, fmt.Errorf("sha256 %q is not 64 hexadecimal digits", c.SHA256))
		}
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("args[%d] is %q, which has a NUL", i, arg))
		}
	}
	errs = append(errs, c.Limits.check("limits")...)
	for i := range c.Dialects {
		errs = append(errs, c.Dialects[i].Limits.check("dialect "+c.Dialects[i].Name+": limits")...)
	}
	known := []string{GrantClock, GrantRandom}
	know := func(imports []Import) {
		for _, im := range imports {
			if im.Grant != "" && !slices.Contains(known, im.Grant) {
				known = append(known, im.Grant)
			}
		}
	}
	know(c.Imports)
	for i := range c.Dialects {
		know(c.Dialects[i].Imports)
		if err := c.Dialects[i].check(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, grant := range c.Grants {
		if !slices.Contains(known, grant) {
			errs = append(errs, fmt.Errorf("grant %q is unknown%s", grant, nearest.Hint("; ", grant, known)))
		}
	}
	if c.Reset > ResetNever {
		errs = append(errs, fmt.Errorf("reset is %d, which is none of the policies", c.Reset))
	}
	if c.Disable.After < 0 || c.Disable.Backoff < 0 || c.Disable.MaxBackoff < 0 {
		errs = append(errs, errors.New("disable has a number below 0"))
	}
	if r := c.Disable.Ratio; !(r >= 0 && r < 1) {
		errs = append(errs, fmt.Errorf("disable.ratio is %g, want at least 0 and less than 1", r))
	}
	if c.Kind == abi.KindCommon {
		errs = append(errs, errors.New("kind is missing"))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("plugin %q: configuration: %w", c.Name, errors.Join(errs...))
}
