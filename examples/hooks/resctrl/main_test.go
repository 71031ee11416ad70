package main

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

// The masks are those of Koordinator's comment on CalculateCatL3MaskValue, the bandwidths those of
// calculateIntelMba and calculateAMDMba.
func TestSchemata(t *testing.T) {
	intel := resctrl{CacheMask: "3ff", Caches: []int64{0, 1}, Vendor: "GenuineIntel"}
	for _, c := range []struct {
		name   string
		config resctrl
		text   string
		want   string // "-" for no group.
		err    string
	}{
		{"a range of ten ways", intel, `{"llc": {"schemata": {"range": [10, 80]}}}`, "L3:0=fe;1=fe", ""},
		{"a range of eleven ways", resctrl{CacheMask: "7ff", Caches: []int64{0}, Vendor: "GenuineIntel"}, `{"llc": {"schemata": {"range": [10, 50]}}}`, "L3:0=3c", ""},
		{"the first ways", resctrl{CacheMask: "7ff", Caches: []int64{0}, Vendor: "GenuineIntel"}, `{"llc": {"schemata": {"range": [0, 30]}}}`, "L3:0=f", ""},
		{"the whole cache", intel, `{"llc": {"schemata": {"range": [0, 100]}}}`, "L3:0=3ff;1=3ff", ""},
		{"another range for a cache", intel, `{"llc": {"schemata": {"range": [0, 100]}, "schemataPerCache": [{"cacheID": 1, "range": [0, 50]}]}}`, "L3:0=3ff;1=1f", ""},
		{"one cache alone, which leaves the other without", intel, `{"llc": {"schemataPerCache": [{"cacheID": 1, "range": [0, 50]}]}}`, "", ""},
		{"bandwidth", intel, `{"mb": {"schemata": {"percent": 20}}}`, "MB:0=20;1=20", ""},
		{"bandwidth in steps", intel, `{"mb": {"schemata": {"percent": 21}}}`, "MB:0=30;1=30", ""},
		{"another bandwidth for a cache", intel, `{"mb": {"schemata": {"percent": 20}, "schemataPerCache": [{"cacheID": 0, "percent": 50}]}}`, "MB:0=50;1=20", ""},
		{"both", intel, `{"llc": {"schemata": {"range": [0, 30]}}, "mb": {"schemata": {"percent": 20}}}`, "L3:0=7;1=7\nMB:0=20;1=20", ""},
		{"an amount of AMD", resctrl{CacheMask: "ffff", Caches: []int64{0}, Vendor: "AuthenticAMD"}, `{"mb": {"schemata": {"percent": 20}}}`, "MB:0=32", ""},
		{"all of AMD", resctrl{CacheMask: "ffff", Caches: []int64{0}, Vendor: "AuthenticAMD"}, `{"mb": {"schemata": {"percent": 100}}}`, "MB:0=2048", ""},
		{"nothing", intel, `{}`, "", ""},
		{"a range that is none", intel, `{"llc": {"schemata": {"range": [50, 50]}}}`, "-", ""},
		{"a range beyond the cache", intel, `{"llc": {"schemata": {"range": [0, 101]}}}`, "-", ""},
		{"no JSON", intel, `{`, "-", ""},
		{"a mask with a gap", resctrl{CacheMask: "f0f", Caches: []int64{0}}, `{}`, "", `cacheMask is "f0f"`},
		{"no caches", resctrl{CacheMask: "fff"}, `{}`, "", "caches is empty"},
	} {
		var d hooks.Decision
		err := c.config.Decide(hooks.NewRequest(hooks.Fields{Level: abi.LevelContainer, PodUID: "u1", PodAnnotations: map[string]string{annotation: c.text}}), &d)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
		}
		got, _ := d.ResctrlSchemata()
		switch group, ok := d.ResctrlGroup(); {
		case !ok:
			got = "-"
		case group != "koordlet-u1":
			t.Errorf("%s: the group is %q", c.name, group)
		}
		if c.err == "" && got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	var d hooks.Decision
	if err := intel.Decide(hooks.NewRequest(hooks.Fields{Level: abi.LevelContainer, PodUID: "u1"}), &d); err != nil {
		t.Error(err)
	}
	if group, ok := d.ResctrlGroup(); ok {
		t.Errorf("without the annotation, the group is %q", group)
	}
}
