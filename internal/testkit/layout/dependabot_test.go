package layout

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestEveryModuleIsUpdated holds that dependabot watches the directory of each go.mod.
func TestEveryModuleIsUpdated(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(root + "/.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for _, m := range regexp.MustCompile(`(?m)^      - (/\S*)$`).FindAllStringSubmatch(string(text), -1) {
		patterns = append(patterns, m[1])
	}
	list := exec.Command("git", "ls-files", "*go.mod")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(files))
	if len(modules) < 2 || len(patterns) == 0 {
		t.Fatalf("there are %d modules and %d directories", len(modules), len(patterns))
	}
	for _, file := range modules {
		watched := false
		for _, pattern := range patterns {
			ok, err := path.Match(pattern, path.Clean("/"+path.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			watched = watched || ok
		}
		if !watched {
			t.Errorf("dependabot does not watch %s", file)
		}
	}
}
