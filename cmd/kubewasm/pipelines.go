package main

import (
	"bytes"
	"cmp"
	"embed"
	"io/fs"
	"slices"
	"strings"
	"text/template"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// pipelines has a directory for each value of --ci. Its files are templates of a [scaffold], with [[ and ]]
// around what is replaced.
//
//go:embed all:pipelines
var pipelines embed.FS

// toolchain are the commands that install the compiler of a language on a runner of GitHub, and in an image
// of Debian with Go.
type toolchain struct{ Runner, Image []string }

// Toolchain returns the commands for the language of the scaffold.
func (s *scaffold) Toolchain() toolchain {
	const install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends "
	switch s.Language {
	case guestbuild.C:
		return toolchain{[]string{"sudo " + strings.Replace(install, "&& ", "&& sudo ", 1) + "clang lld"}, []string{install + "clang lld"}}
	case guestbuild.Rust:
		return toolchain{[]string{"rustup target add wasm32-unknown-unknown"}, []string{install + "cargo rustc libstd-rust-dev-wasm32 lld"}}
	case guestbuild.AssemblyScript:
		return toolchain{Image: []string{install + "nodejs npm"}} // A runner has them.
	}
	return toolchain{}
}

// CommandVersion returns the version of the command that a pipeline installs.
func (s *scaffold) CommandVersion() string { return cmp.Or(s.Library.Version, "latest") }

// Output returns the name of the module that the steps write.
func (s *scaffold) Output() string {
	if s.Kind == "service" && s.Language == guestbuild.Go {
		return "region.wasm"
	}
	return s.Name + ".wasm"
}

// Checks returns the steps that a pipeline runs: those that do not merely show something.
func (s *scaffold) Checks() (commands []string) {
	for _, step := range s.Steps {
		if step.Comment != decides && !strings.HasPrefix(step.Command, "go run ") {
			commands = append(commands, step.Command)
		}
	}
	return commands
}

// addPipeline adds the files of the pipelines of a forge.
func (s *scaffold) addPipeline(forge string) error {
	root := "pipelines/" + forge
	return fs.WalkDir(pipelines, root, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(pipelines, file)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := template.Must(template.New(file).Delims("[[", "]]").Parse(string(text))).Execute(&b, s); err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ".tmpl")
		s.text[name] = b.Bytes()
		s.Files = slices.Insert(s.Files, len(s.Files)-1, scaffoldFile{name, "tests each change, and pushes and signs tags"})
		return nil
	})
}
