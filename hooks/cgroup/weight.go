package cgroup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// WeightConversion is a conversion from cpu.shares of cgroup v1 (2 to 262144, 1024 by default) to
// cpu.weight of v2 (1 to 10000, 100 by default). It should be the conversion of the cgroup's
// writer, or the two overwrite each other: see [ApplierConfig.Weight] and
// [ApplierConfig.KubeletWeight].
type WeightConversion uint8

const (
	// WeightQuadratic maps the default to the default. The exponent of the weight is a quadratic
	// function of that of the shares, through (2, 1), (1024, 100) and (262144, 10000). It is the
	// conversion of runc 1.3.2, crun 1.23 and later (github.com/opencontainers/cgroups,
	// ConvertCPUSharesToCgroupV2Value).
	WeightQuadratic WeightConversion = 1 + iota
	// WeightLinear maps the range to the range, so the default of 1024 becomes 39. It is the
	// conversion of older runtimes, and of the kubelet up to 1.37
	// (k8s.io/kubernetes/pkg/kubelet/cm, getCPUWeight).
	WeightLinear
)

const minShares, maxShares, maxWeight = 2, 1 << 18, 10_000

// Weight returns the cpu.weight for shares. Shares out of their range count as
// its nearest end.
func (c WeightConversion) Weight(shares int64) int64 {
	shares = min(max(shares, minShares), maxShares)
	if c == WeightLinear {
		return 1 + (shares-minShares)*(maxWeight-1)/(maxShares-minShares)
	}
	switch shares {
	case minShares:
		return 1 // Rounding up would miss it.
	case maxShares:
		return maxWeight
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// String returns the name of the conversion.
func (c WeightConversion) String() string {
	switch c {
	case WeightQuadratic:
		return "quadratic"
	case WeightLinear:
		return "linear"
	}
	return fmt.Sprintf("weightConversion(%d)", uint8(c))
}

// writer is the component that creates a cgroup.
type writer uint8

const (
	theRuntime writer = iota
	theKubelet

	writers
)

// writerOf returns the creator of the cgroups of a level.
func writerOf(level abi.Level) writer {
	if level == abi.LevelPod || level == abi.LevelQOS {
		return theKubelet
	}
	return theRuntime
}

// conversions are the conversions by which the cgroups of a node were written. They are detected
// from cgroups with known shares, by comparing the weight with the result of each conversion. An
// upgraded runtime may convert differently, so each cgroup has its conversion. A cgroup that does
// not reveal it gets that of the youngest one that does.
type conversions struct {
	// fixed are the configured conversions, 0 for one to detect.
	fixed [writers]WeightConversion

	mu sync.Mutex
	// of holds the conversions of cgroups, 0 for one that does not reveal it.
	of map[string]WeightConversion
	// youngest is the conversion of the youngest cgroup of a writer, and made its number in the
	// order of creation.
	youngest [writers]struct {
		is   WeightConversion
		made uint64
	}
}

// defaultConversions are the conversions of a node without a cgroup that reveals them.
var defaultConversions = [writers]WeightConversion{theRuntime: WeightQuadratic, theKubelet: WeightLinear}

// defaultWeight is the kernel's weight for a new cgroup.
const defaultWeight = 100

// conversion returns the conversion of a cgroup.
func (a *Applier) conversion(level abi.Level, cgroup string) WeightConversion {
	by, c := writerOf(level), &a.conversions
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.fixed[by], c.of[cgroup], c.youngest[by].is, defaultConversions[by])
}

// FindConversion detects the conversion of a cgroup's shares to its cpu.weight. shares are the
// possible origins of the weight: the requested and the decided shares. It returns 0 if the weight
// does not reveal the conversion, because no conversion yields it from any of the shares, or both
// do. It also returns 0 on cgroup v1, and if the conversion is configured.
//
// Later decisions on cpu_shares use the detected conversion: on the cgroup, and on others without a
// detected one unless that of a younger cgroup applies.
func (a *Applier) FindConversion(level abi.Level, cgroup string, shares ...int64) WeightConversion {
	by, c := writerOf(level), &a.conversions
	if a.version != V2 || c.fixed[by] != 0 {
		return 0
	}
	weight, err := a.weightOf(cgroup)
	if err != nil || by == theKubelet && weight == defaultWeight {
		return 0 // The kubelet may not have written yet. A runtime has written once its container is known.
	}
	var found WeightConversion
	for _, is := range []WeightConversion{WeightQuadratic, WeightLinear} {
		if slices.ContainsFunc(shares, func(shares int64) bool { return is.Weight(shares) == weight }) {
			if found != 0 {
				found = 0
				break
			}
			found = is
		}
	}
	var made uint64
	if info, err := a.root.Lstat(cgroup); err == nil {
		made = creation(info)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]WeightConversion{}
	}
	c.of[cgroup] = cmp.Or(found, c.of[cgroup])
	if found != 0 && made >= c.youngest[by].made {
		c.youngest[by].is, c.youngest[by].made = found, made
	}
	return found
}

// weightOf returns the cpu.weight of a cgroup.
func (a *Applier) weightOf(cgroup string) (int64, error) {
	dir, err := a.openDirectory("cpu", cgroup)
	if err != nil {
		return 0, err
	}
	defer dir.close()
	text, err := dir.read("cpu.weight", maxFile, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

// found returns the conversion detected for a cgroup; ok is false if the cgroup was not examined.
func (c *conversions) found(cgroup string) (is WeightConversion, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, ok = c.of[cgroup]
	return is, ok
}

// forget drops the conversions of cgroups for which gone returns true.
func (c *conversions) forget(gone func(cgroup string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.of, func(cgroup string, _ WeightConversion) bool { return gone(cgroup) })
}

// findConversions examines the cgroups whose shares change, unless their conversion is known. If
// one does not reveal it, it examines all cgroups with known shares. A weight that has changed
// under an unchanged decision reveals nothing: another writer has set it.
func (e *Enforcer) findConversions(ctx context.Context, differ []Target) {
	a := e.applier
	if a.version != V2 || a.conversions.fixed[theRuntime] != 0 && a.conversions.fixed[theKubelet] != 0 {
		return
	}
	before := [writers]WeightConversion{a.conversion(abi.LevelContainer, ""), a.conversion(abi.LevelPod, "")}
	unknown := false
	for i := range differ {
		d := &differ[i]
		k := e.cgroups[d.Cgroup]
		if d.Resources.CPUShares == nil || k != nil && k.resources == d.Resources {
			continue
		}
		known, _ := a.conversions.found(d.Cgroup)
		if known != 0 && k != nil && k.resources != nil && k.resources.CPUShares != nil {
			if weight, err := a.weightOf(d.Cgroup); err == nil && weight == known.Weight(*k.resources.CPUShares) {
				continue // The Enforcer has written it.
			}
		}
		shares := []int64{*d.Resources.CPUShares}
		if asked := e.state.facts.AskedOf(d.PodUID, d.Cgroup); asked != nil && asked.CPUShares != nil {
			shares = append(shares, *asked.CPUShares)
		}
		if a.FindConversion(d.Level, d.Cgroup, shares...) == 0 && known == 0 {
			unknown = true
		}
	}
	if unknown {
		e.state.facts.EachAsked(func(cgroup string, pod bool, asked *hookmsg.Resources) {
			if _, ok := a.conversions.found(cgroup); ok || asked.CPUShares == nil {
				return
			}
			level, shares := abi.LevelContainer, []int64{*asked.CPUShares}
			if pod {
				level = abi.LevelPod
			}
			if decided, _ := e.state.Get(cgroup); decided.Resources != nil && decided.Resources.CPUShares != nil {
				shares = append(shares, *decided.Resources.CPUShares)
			}
			a.FindConversion(level, cgroup, shares...)
		})
	}
	for by, level := range [writers]abi.Level{theRuntime: abi.LevelContainer, theKubelet: abi.LevelPod} {
		if is := a.conversion(level, ""); is != before[by] && e.cfg.Logger != nil {
			e.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "cpu_shares are converted to cpu.weight by a different formula from now on, found in cgroups of other writers",
				slog.String("change", level.String()+": "+before[by].String()+" -> "+is.String()))
		}
	}
}
