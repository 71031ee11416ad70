package cgroup

import (
	"fmt"
	"math"

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

// conversion returns that of cgroups at a level.
func (a *Applier) conversion(level hookmsg.Level) WeightConversion {
	if level == hookmsg.LevelPod || level == hookmsg.LevelQOS {
		return a.kubeletWeight
	}
	return a.weight
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
