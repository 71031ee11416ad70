package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// runsTests matches a step that runs tests which fail on the forge without their tools, and installsTools one that
// installs these.
var runsTests, installsTools = regexp.MustCompile(`\bgo test\b|\bmake (guides|race|nightly|kubernetes|site|upgrades)\b`), regexp.MustCompile(`\.ci/(packages|run)$`)

var pinnedAction = regexp.MustCompile(`^\s*(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestWorkflows holds what OpenSSF's scorecard asks of workflows: they begin with read-only permissions, no script has an
// expression, in which strangers may write commands, and none runs with secrets on a stranger's commit. Each action
// is pinned by the digest of a commit, with its version in a comment that dependabot keeps. A job that runs tests
// installs their tools first, since the forge sets CI.
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
			tools := false
			for _, step := range job.Steps {
				if tools = tools || installsTools.MatchString(step.Run); !tools && runsTests.MatchString(step.Run) {
					t.Errorf("%s: %s runs tests without .ci/packages before it: %s", file, name, step.Run)
				}
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: %s: a script has an expression, want a variable of env: %s", file, name, step.Run)
				}
			}
		}
	}
}

// TestPathsAndSignOff runs the scripts of the first job of CI on commits of a repository of its own.
func TestPathsAndSignOff(t *testing.T) {
	scripts, err := filepath.Abs("../../../.github")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	commit := func(file, message string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(message), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", message}} {
			if out, err := run("git", args...); err != nil {
				t.Fatalf("git %s: %v: %s", args, err, out)
			}
		}
	}
	commit("README.md", "Begin")
	for _, tc := range []struct {
		file, message, code string
		signed              bool
	}{
		{"docs/guide.md", "Guide\n\nSigned-off-by: A <a@example.com>", "code=false\n", true},
		{"docs/images/a.png", "Picture\n\nSigned-off-by: B <b@example.com>", "code=false\n", false},
		{"host/host.go", "Host", "code=true\n", false},
		{"internal/x/testdata/a.md", "Data\n\nSigned-off-by: A <a@example.com>", "code=true\n", true},
	} {
		commit(tc.file, tc.message)
		if got, err := run(scripts+"/paths.sh", "HEAD~1"); err != nil || got != tc.code {
			t.Errorf("%s: got %q, error %v, want %q", tc.file, got, err, tc.code)
		}
		if out, err := run(scripts+"/dco.sh", "HEAD~1"); (err == nil) != tc.signed {
			t.Errorf("%q: error %v, signed %t: %s", tc.message, err, tc.signed, out)
		}
	}
}
