package nearest_test

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

func TestName(t *testing.T) {
	names := []string{"zone", "labels", "image", "httpGet", "x", "weights", "maxReplicas"}
	for name, want := range map[string]string{
		"zon":         "zone",
		"Zone":        "zone",
		"zoen":        "zone",
		"label":       "labels",
		"imgae":       "image",
		"httpget":     "httpGet",
		"X":           "x",
		"y":           "",
		"z":           "",
		"wieght":      "weights",
		"maxReplcas":  "maxReplicas",
		"minReplicas": "maxReplicas",
		"replicas":    "",
		"":            "",
	} {
		if got := nearest.Name(name, names); got != want {
			t.Errorf("Name(%q) is %q, want %q", name, got, want)
		}
	}
}

func TestHint(t *testing.T) {
	names := []string{"name", "version"}
	for name, want := range map[string]string{"nmae": `; did you mean "name"?`, "other": "; there are name, version"} {
		if got := nearest.Hint("; ", name, names); got != want {
			t.Errorf("Hint(%q) is %q, want %q", name, got, want)
		}
	}
	if got := nearest.Hint("; ", "name", nil); got != "" {
		t.Errorf("a hint of nothing: %q", got)
	}
}

// FuzzName holds that what is found is among the names, in any bytes.
func FuzzName(f *testing.F) {
	f.Add("lables", "labels,zone")
	f.Fuzz(func(t *testing.T, name, list string) {
		names := strings.Split(list, ",")
		if got := nearest.Name(name, names); got != "" && !strings.Contains(","+list+",", ","+got+",") {
			t.Errorf("Name(%q, %q) is %q", name, names, got)
		}
		if own := nearest.Name(name, []string{name}); own != name {
			t.Errorf("Name(%q) of itself is %q", name, own)
		}
	})
}
