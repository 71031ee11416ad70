package layout

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEveryModuleIsUpdated holds that dependabot watches the directory of each file with dependencies, but for
// templates and data of tests, and no directory without one.
func TestEveryModuleIsUpdated(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(root + "/.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
			Directory   string   `json:"directory"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	watched := map[string][]string{}
	for _, u := range config.Updates {
		watched[u.Ecosystem] = append(watched[u.Ecosystem], append(u.Directories, u.Directory)...)
	}
	if !slices.Contains(watched["github-actions"], "/") {
		t.Error("dependabot does not watch the actions of workflows")
	}
	for ecosystem, file := range map[string]string{"gomod": "go.mod", "npm": "package.json", "cargo": "Cargo.toml", "docker": "Dockerfile"} {
		list := exec.Command("git", "ls-files", file, "*/"+file)
		list.Dir = root
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		used, files := map[string]bool{}, 0
		for _, name := range strings.Fields(string(out)) {
			if parts := strings.Split(name, "/"); slices.Contains(parts, "testdata") || slices.Contains(parts, "templates") {
				continue
			}
			files++
			found := false
			for _, pattern := range watched[ecosystem] {
				ok, err := path.Match(pattern, path.Clean("/"+path.Dir(name)))
				if err != nil {
					t.Fatal(err)
				}
				found, used[pattern] = found || ok, used[pattern] || ok
			}
			if !found {
				t.Errorf("dependabot does not watch %s", name)
			}
		}
		if files == 0 {
			t.Errorf("there is no %s", file)
		}
		for _, pattern := range watched[ecosystem] {
			if pattern != "" && !used[pattern] {
				t.Errorf("dependabot watches %s without a %s", pattern, file)
			}
		}
	}
}
