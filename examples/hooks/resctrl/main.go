// Command resctrl is a runtime hook that gives pods a part of the last-level cache and of the
// memory's bandwidth, after Koordinator's hook of the same name. An annotation has it, in
// hundredths, for all caches or for some:
//
//	node.koordinator.sh/resctrl: |
//	  {"llc": {"schemata": {"range": [0, 30]}, "schemataPerCache": [{"cacheID": 1, "range": [0, 50]}]},
//	   "mb": {"schemata": {"percent": 20}, "schemataPerCache": [{"cacheID": 1, "percent": 50}]}}
//
// The processes of the pod get a resctrl group by its UID. What the node has is in the configuration:
// the mask of its cache (info/L3/cbm_mask of resctrl), the numbers of its caches (those in schemata),
// and whether the bandwidth is a share, as of Intel, or an amount, as of AMD:
//
//	{"cacheMask": "fff", "caches": [0, 1], "vendor": "GenuineIntel"}
//
// The plugin needs the grant resctrl: ["koordlet-*"]. Koordinator removes the group with its pod;
// here it stays until the node starts anew, without processes.
package main

import (
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

//kubewasm:reads pod pod_annotations[node.koordinator.sh/resctrl]
//kubewasm:decides resctrl_group resctrl_schemata

const (
	annotation  = "node.koordinator.sh/resctrl"
	groupPrefix = "koordlet-"

	// amdGbps is what a die of AMD's has at most, in eighths of a GB/s; amdUnlimited stands for no
	// limit.
	amdGbps, amdUnlimited = 160, 2048
)

// resctrl is the configuration.
type resctrl struct {
	// CacheMask is the mask of the whole cache, in hexadecimal.
	CacheMask string  `json:"cacheMask"`
	Caches    []int64 `json:"caches"`
	Vendor    string  `json:"vendor"`
}

// config is the annotation.
type config struct {
	LLC struct {
		Schemata amount   `json:"schemata"`
		PerCache []amount `json:"schemataPerCache"`
	} `json:"llc"`
	MB struct {
		Schemata amount   `json:"schemata"`
		PerCache []amount `json:"schemataPerCache"`
	} `json:"mb"`
}

// amount is a part of a cache, or of one of those.
type amount struct {
	CacheID int64   `json:"cacheID"`
	Percent int64   `json:"percent"`
	Range   []int64 `json:"range"`
}

func (r *resctrl) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() != abi.LevelContainer {
		return nil
	}
	text, ok := req.PodAnnotations().Lookup(annotation)
	if !ok {
		return nil
	}
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		log.Warn("a pod has no resctrl group: its annotation cannot be read", "pod", req.Pod().Name(), "annotation", annotation, "err", err)
		return nil
	}
	schemata, err := r.schemata(&c)
	var wrong *rangeError
	switch {
	case errors.As(err, &wrong):
		log.Warn("a pod has no resctrl group", "pod", req.Pod().Name(), "annotation", annotation, "err", err)
		return nil
	case err != nil:
		return err
	}
	d.SetResctrlGroup(groupPrefix + req.Pod().UID())
	if schemata != "" {
		d.SetResctrlSchemata(schemata)
	}
	return nil
}

// schemata returns the text for a group, empty for none. A resource that some cache has nothing of is
// left out.
func (r *resctrl) schemata(c *config) (string, error) {
	mask, err := strconv.ParseUint(r.CacheMask, 16, 32)
	if err != nil || bits.OnesCount64(mask+1) != 1 || mask == 0 {
		return "", errors.New("cacheMask is " + strconv.Quote(r.CacheMask) + `, want ones such as "fff"`)
	}
	if len(r.Caches) == 0 {
		return "", errors.New("caches is empty")
	}
	cache, memory := make([]int64, len(r.Caches)), make([]int64, len(r.Caches))
	ways := int64(bits.Len64(mask))
	for i, id := range r.Caches {
		if a := c.LLC.Schemata; len(a.Range) == 2 {
			if cache[i], err = part(ways, a.Range); err != nil {
				return "", err
			}
		}
		for _, a := range c.LLC.PerCache {
			if a.CacheID != id || len(a.Range) != 2 {
				continue
			}
			if cache[i], err = part(ways, a.Range); err != nil {
				return "", err
			}
		}
		if p := c.MB.Schemata.Percent; p != 0 {
			memory[i] = r.bandwidth(p)
		}
		for _, a := range c.MB.PerCache {
			if a.CacheID == id {
				memory[i] = r.bandwidth(a.Percent)
			}
		}
	}
	var lines []string
	for _, of := range [...]struct {
		name   string
		values []int64
		base   int
	}{{"L3", cache, 16}, {"MB", memory, 10}} {
		if slices.ContainsFunc(of.values, func(v int64) bool { return v <= 0 }) {
			continue
		}
		var parts []string
		for i, id := range r.Caches {
			parts = append(parts, strconv.FormatInt(id, 10)+"="+strconv.FormatInt(of.values[i], of.base))
		}
		lines = append(lines, of.name+":"+strings.Join(parts, ";"))
	}
	return strings.Join(lines, "\n"), nil
}

// rangeError is a mistake in the annotation, which is logged. Mistakes in the configuration fail the
// plugin.
type rangeError struct{ from, to int64 }

func (e *rangeError) Error() string {
	return "the range is " + strconv.FormatInt(e.from, 10) + " to " + strconv.FormatInt(e.to, 10) + ", want one of 0 to 100"
}

// part returns the mask of a range of the ways of a cache, in hundredths.
func part(ways int64, of []int64) (int64, error) {
	from, to := of[0], of[1]
	if from < 0 || to > 100 || to <= from {
		return 0, &rangeError{from, to}
	}
	ceil := func(hundredths int64) int64 { return (ways*hundredths + 99) / 100 }
	return 1<<ceil(to) - 1<<ceil(from), nil
}

// bandwidth returns the number for a share of the bandwidth.
func (r *resctrl) bandwidth(percent int64) int64 {
	switch r.Vendor {
	case "AuthenticAMD":
		if percent == 100 {
			return amdUnlimited
		}
		return amdGbps * percent / 100
	case "GenuineIntel":
		return (percent + 9) / 10 * 10 // In steps of 10.
	}
	return 0
}

func init() { hooks.Register(&resctrl{Vendor: "GenuineIntel"}) }

func main() {}
