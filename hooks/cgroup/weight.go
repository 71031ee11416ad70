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

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// WeightConversion is a way from cpu.shares of cgroup v1 (2 to 262144, 1024 by
// default) to cpu.weight of v2 (1 to 10000, 100 by default). It should be that
// of the writer of the cgroup, or the two overwrite each other: see
// [ApplierConfig.Weight] and [ApplierConfig.KubeletWeight].
type WeightConversion uint8

const (
	// WeightQuadratic maps default to default: the exponent of the weight is a
	// quadratic function of that of the shares, through (2, 1), (1024, 100) and
	// (262144, 10000). It is that of runc 1.3.2, crun 1.23 and later
	// (github.com/opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value).
	WeightQuadratic WeightConversion = 1 + iota
	// WeightLinear maps range to range, which makes 39 of the default of 1024.
	// It is that of older runtimes, and of the kubelet up to 1.37
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
		return 1 // Which rounding up would miss.
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

// writer is who makes a cgroup.
type writer uint8

const (
	theRuntime writer = iota
	theKubelet

	writers
)

// writerOf returns who makes the cgroups of a level.
func writerOf(level hookmsg.Level) writer {
	if level == hookmsg.LevelPod || level == hookmsg.LevelQOS {
		return theKubelet
	}
	return theRuntime
}

// conversions are those by which the cgroups of a node were written. They are found from cgroups
// whose shares are known: the weight of one is what a conversion makes of them. A runtime that is
// upgraded converts otherwise from then on, so each cgroup has its own; for one that does not tell,
// it is that of the youngest that does.
type conversions struct {
	// fixed are those that are configured, 0 for one to find.
	fixed [writers]WeightConversion

	mu sync.Mutex
	// of are those of cgroups, 0 for one that does not tell.
	of map[string]WeightConversion
	// youngest is that of the youngest cgroup of a writer, made its number in the order of creation.
	youngest [writers]struct {
		is   WeightConversion
		made uint64
	}
}

// defaultConversions are those of a node of which no cgroup tells.
var defaultConversions = [writers]WeightConversion{theRuntime: WeightQuadratic, theKubelet: WeightLinear}

// defaultWeight is the kernel's for a new cgroup.
const defaultWeight = 100

// conversion returns that of a cgroup.
func (a *Applier) conversion(level hookmsg.Level, cgroup string) WeightConversion {
	by, c := writerOf(level), &a.conversions
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.fixed[by], c.of[cgroup], c.youngest[by].is, defaultConversions[by])
}

// FindConversion finds how the shares of a cgroup became its cpu.weight, from the values that one of
// them has come from: those that are asked for it, and those that were decided. It returns 0 if the
// weight does not tell: no conversion makes it of any of the shares, or both do. On cgroup v1, and if
// the conversion is configured, there is nothing to find.
//
// Later decisions on cpu_shares are converted likewise: on the cgroup, and on others of which
// nothing was found if none of them is younger.
func (a *Applier) FindConversion(level hookmsg.Level, cgroup string, shares ...int64) WeightConversion {
	by, c := writerOf(level), &a.conversions
	if a.version != V2 || c.fixed[by] != 0 {
		return 0
	}
	weight, err := a.weightOf(cgroup)
	if err != nil || by == theKubelet && weight == defaultWeight {
		return 0 // The kubelet may not have written yet. A runtime has when its container is known.
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

// found returns the conversion that was found of a cgroup; ok is false if it was not looked at.
func (c *conversions) found(cgroup string) (is WeightConversion, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, ok = c.of[cgroup]
	return is, ok
}

// forget drops what is known of cgroups.
func (c *conversions) forget(gone func(cgroup string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.of, func(cgroup string, _ WeightConversion) bool { return gone(cgroup) })
}

// findConversions looks at the cgroups that get other shares than before, if they are not known to
// be converted in one way or another. If one does not tell, it looks at all cgroups whose shares are
// known. A weight that has changed below the same decision tells nothing: it is another writer's.
func (e *Enforcer) findConversions(ctx context.Context, differ []Target) {
	a := e.applier
	if a.version != V2 || a.conversions.fixed[theRuntime] != 0 && a.conversions.fixed[theKubelet] != 0 {
		return
	}
	before := [writers]WeightConversion{a.conversion(hookmsg.LevelContainer, ""), a.conversion(hookmsg.LevelPod, "")}
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
				continue // It is the Enforcer's.
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
			level, shares := hookmsg.LevelContainer, []int64{*asked.CPUShares}
			if pod {
				level = hookmsg.LevelPod
			}
			if decided, _ := e.state.Get(cgroup); decided.Resources != nil && decided.Resources.CPUShares != nil {
				shares = append(shares, *decided.Resources.CPUShares)
			}
			a.FindConversion(level, cgroup, shares...)
		})
	}
	for by, level := range [writers]hookmsg.Level{theRuntime: hookmsg.LevelContainer, theKubelet: hookmsg.LevelPod} {
		if is := a.conversion(level, ""); is != before[by] && e.cfg.Logger != nil {
			e.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "cpu_shares become cpu.weight otherwise from now on, as cgroups that others have written show",
				slog.String("change", level.String()+": "+before[by].String()+" -> "+is.String()))
		}
	}
}
