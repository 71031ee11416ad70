package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var pinnedAction = regexp.MustCompile(`^\s*(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestWorkflows holds what OpenSSF's scorecard asks of workflows: they begin with read-only permissions, no script has an
// expression, in which strangers may write commands, and none runs with secrets on a stranger's commit. Each action
// is pinned by the digest of a commit, with its version in a comment that dependabot keeps.
func TestWorkflows(t *testing.T) {
	const root = "../../.."
	files, err := filepath.Glob(root + "/.github/workflows/*.yml")
	if err != nil || len(files) < 4 {
		t.Fatalf("there are %d workflows: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinnedAction.MatchString(strings.TrimRight(line, "\n")) {
				t.Errorf("%s: no digest of a commit with its version: %s", file, line)
			}
		}
		if strings.Contains(string(text), "pull_request_target") || strings.Contains(string(text), "workflow_run") {
			t.Errorf("%s: it runs with secrets on commits of others", file)
		}
		var workflow struct {
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]struct {
				TimeoutMinutes int `json:"timeout-minutes"`
				Steps          []struct {
					Run string `json:"run"`
				} `json:"steps"`
			} `json:"jobs"`
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatal(err)
		}
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions are %v, want contents: read, and more in the jobs that need it", file, workflow.Permissions)
		}
		for name, job := range workflow.Jobs {
			if job.TimeoutMinutes == 0 {
				t.Errorf("%s: %s has no timeout-minutes", file, name)
			}
			for _, step := range job.Steps {
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: %s: a script has an expression, want a variable of env: %s", file, name, step.Run)
				}
			}
		}
	}
}
