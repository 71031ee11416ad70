package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPlugins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := `
profiles:
- schedulerName: a
  pluginConfig:
  - {name: zone, args: {module: {file: /plugins/zone.wasm}}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5}}
- schedulerName: b
  pluginConfig:
  - {name: zone, args: {module: {file: /plugins/zone.wasm}, guestConfig: {}}}
  - {name: gang, args: {module: {https: "https://example.com/gang.wasm"}}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no arguments":                        {nil, nil},
		"no configuration":                    {[]string{"--v=2", "--secure-port", "10259"}, nil},
		"a configuration":                     {[]string{"--v=2", "--config=" + file, "--profiling"}, []string{"zone", "gang"}},
		"in an argument of its own":           {[]string{"--config", file}, []string{"zone", "gang"}},
		"after a flag with one dash":          {[]string{"-v=2", "--config", file}, []string{"zone", "gang"}},
		"the configuration of the repository": {[]string{"--config=config.yaml"}, []string{"zone", "image-locality", "gang"}},
		"help":                                {[]string{"--help"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := read(test.args)
			if err != nil || !slices.Equal(o.plugins, test.want) {
				t.Errorf("got %+v, %v, want %q", o, err, test.want)
			}
		})
	}
	if _, err := read([]string{"--config=" + file + "x"}); err == nil {
		t.Error("no error without the file")
	}
}
