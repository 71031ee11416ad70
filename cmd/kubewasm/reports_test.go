package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

// TestReportsForABrowser holds that each report is one file that a browser shows without scripts,
// errors and other files, as wide as a phone.
func TestReportsForABrowser(t *testing.T) {
	dir := t.TempDir()
	old, changed, recording := recorded(t)
	var objects strings.Builder
	for i := range 24 {
		labels := ""
		if i%3 == 0 {
			labels = ", labels: {owner: ann}"
		}
		fmt.Fprintf(&objects, "---\n{apiVersion: v1, kind: Pod, metadata: {name: 'web-%02d', namespace: %s%s}}\n", i, []string{"shop", "billing", "search"}[i%4%3], labels)
	}
	objects.WriteString("---\n{apiVersion: v1, kind: Pod, metadata: {name: '<script>alert(1)</script>', namespace: shop}}\n")
	pods := filepath.Join(dir, "pods.yaml")
	if err := os.WriteFile(pods, []byte(objects.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := operate.NewBrowser(t)
	for name, tt := range map[string]struct {
		args []string
		code int
		// shows are texts of the page, which has so many of each element.
		shows    []string
		elements map[string]int
	}{
		"replay": {
			[]string{"replay", "--diff", recording, old, changed}, 2,
			[]string{"What the new module would change", "node is odd", "node is old", "Calls repeated\n10", "Answered differently\n5"}, map[string]int{`<div class="pair">`: 1},
		},
		"audit": {
			[]string{"audit", "--policies", owners(t, ""), "-f", pods}, 2,
			[]string{"Findings by namespace", "Findings of owners", "billing", "search", "<script>alert(1)</script>", "Denied\n17"}, map[string]int{"<h2>": 4},
		},
		"profile": {
			[]string{"profile", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), built(t, "testdata/zone")}, 0,
			[]string{"Fuel of zone", "main.(*zone).Filter"}, map[string]int{`<svg class="flame"`: 1, "<title>all calls: ": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(dir, name+".html")
			if code, text, stderr := kubewasm(t, append(tt.args, "-o", "html", "--output-file", out)...); code != tt.code || text == "" {
				t.Fatalf("exit code %d, want %d: %s%s", code, tt.code, text, stderr)
			}
			html, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, foreign := range []string{"http://", "https://", "src=", "<script"} {
				if strings.Contains(string(html), foreign) {
					t.Errorf("the file has %s", foreign)
				}
			}
			for element, n := range tt.elements {
				if got := strings.Count(string(html), element); got != n {
					t.Errorf("the file has %s %d times, want %d", element, got, n)
				}
			}
			for _, width := range []int{360, 1000} {
				p := b.Open("file://"+out, width, 800)
				if len(p.Errors) != 0 || p.Width > float64(width) {
					t.Errorf("at %d pixels the page is %v wide, with the errors %s", width, p.Width, p.Errors)
				}
				for _, want := range tt.shows {
					if !strings.Contains(p.Text, want) {
						t.Errorf("the page does not show %q:\n%s", want, p.Text)
					}
				}
				if to := os.Getenv("KUBEWASM_PICTURES"); to != "" && width == 1000 {
					if err := os.WriteFile(filepath.Join(to, name+".png"), p.PNG, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
	for _, args := range [][]string{{"replay", "-o", "html", recording, old}, {"profile", "--diff", "-o", "html", recording, old, changed}} {
		if code, _, stderr := kubewasm(t, args...); code != 1 || !strings.Contains(stderr, "html") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
