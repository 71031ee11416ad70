package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPipelines holds that pipelines of new plugins run the steps that new prints, have no expression in a
// script of GitHub, and pin actions as the workflows of this repository do.
func TestPipelines(t *testing.T) {
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n`)
	for _, language := range directories("templates") {
		for forge, file := range map[string]string{"github": ".github/workflows/plugin.yml", "gitlab": ".gitlab-ci.yml"} {
			t.Run(language+" at "+forge, func(t *testing.T) {
				out := scaffolded(t, "--kind", "admission", "--lang", language, "--ci", forge, "--name", "mine", ".")
				if !strings.Contains(out, file) {
					t.Errorf("%s is not listed: %s", file, out)
				}
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				text := string(raw)
				if got, want := len(pinned.FindAllString(text, -1)), strings.Count(text, "uses: "); got != want {
					t.Errorf("%d of %d actions are pinned", got, want)
				}
				var pipeline struct {
					Jobs map[string]struct {
						Steps []struct{ Run string }
					}
					Test, Publish struct{ Script []string }
				}
				if err := yaml.UnmarshalStrict(raw, new(map[string]any)); err != nil {
					t.Fatal(err)
				}
				if err := yaml.Unmarshal(raw, &pipeline); err != nil {
					t.Fatal(err)
				}
				scripts := map[string][]string{"test": pipeline.Test.Script, "publish": pipeline.Publish.Script}
				for job, j := range pipeline.Jobs {
					for _, step := range j.Steps {
						if strings.Contains(step.Run, "${{") {
							t.Errorf("a script has an expression: %s", step.Run)
						}
						scripts[job] = append(scripts[job], step.Run)
					}
				}
				for job, commands := range map[string][]string{"test": {"kubewasm build", "kubewasm inspect mine.wasm"}, "publish": {`mine.wasm "`, "cosign sign", "io.artifacthub.package.readme-url"}} {
					for _, command := range commands {
						if !strings.Contains(strings.Join(scripts[job], "\n"), command) {
							t.Errorf("%s does not run %s: %q", job, command, scripts[job])
						}
					}
				}
			})
		}
	}
}
