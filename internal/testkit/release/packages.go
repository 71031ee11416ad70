package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// archived is the archive of the command for a platform, as package managers fetch it.
type archived struct {
	OS, Arch, URL, SHA256, Binary string
}

//go:embed manifests.tmpl
var manifestTexts string

// manifests writes the Homebrew formula, the manifest of Krew and the notes for users.
func (m *maker) manifests(p program) error {
	byPlatform := map[string]archived{}
	var list []archived
	for _, on := range p.platforms {
		name, binary := m.archiveName(p, on)+".tar.gz", p.name
		if on.os == "windows" {
			name, binary = m.archiveName(p, on)+".zip", p.name+".exe"
		}
		data, err := os.ReadFile(filepath.Join(m.out, name))
		if err != nil {
			return err
		}
		a := archived{on.os, on.arch, "https://" + root + "/releases/download/" + m.version + "/" + name, fmt.Sprintf("%x", sha256.Sum256(data)), binary}
		list, byPlatform[on.os+"/"+on.arch] = append(list, a), a
	}
	texts, err := template.New("").Funcs(template.FuncMap{"of": func(on string) *archived {
		if a, ok := byPlatform[on]; ok {
			return &a
		}
		return nil
	}}).Parse(manifestTexts)
	if err != nil {
		return err
	}
	about := struct {
		Version, Number, Registry, Root string
		Archives                        []archived
		Images                          []string
	}{m.version, m.number(), registry, root, list, m.images}
	for _, name := range []string{"kubewasm.rb", "krew.yaml", "INSTALL.md"} {
		var text bytes.Buffer
		if err := texts.ExecuteTemplate(&text, name, about); err != nil {
			return err
		}
		if err := m.write(name, text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files of a directory of the repository that git knows and that one of the patterns matches,
// by their path or by the first directory of it, as entries below a prefix.
func (m *maker) files(ctx context.Context, dir, prefix string, patterns ...string) ([]entry, error) {
	out, err := run(ctx, filepath.Join(m.repo, dir), "git", "ls-files")
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(m.repo, "LICENSE"))
	if err != nil {
		return nil, err
	}
	list := []entry{{prefix + "LICENSE", 0o644, license}}
	for name := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(patterns, func(pattern string) bool {
			whole, err := path.Match(pattern, name)
			return err == nil && whole || pattern == first
		}) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.repo, dir, name))
		if err != nil {
			return nil, err
		}
		list = append(list, entry{prefix + name, 0o644, data})
	}
	return list, nil
}

var crateVersion = regexp.MustCompile(`(?m)^version = "[^"]*"$`)

// packages writes what npm publish takes, and the sources of the crate.
func (m *maker) packages(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(m.repo, "guest/assemblyscript/package.json"))
	if err != nil {
		return err
	}
	var about struct {
		Version string   `json:"version"`
		Files   []string `json:"files"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return err
	}
	npm, err := m.files(ctx, "guest/assemblyscript", "package/", append(about.Files, "package.json", "README.md")...)
	if err != nil {
		return err
	}
	crate, err := m.files(ctx, "guest/rust", "kubewasm-"+m.number()+"/", "Cargo.toml", "src", "tests")
	if err != nil {
		return err
	}
	for i := range npm {
		if npm[i].name == "package/package.json" {
			npm[i].data = bytes.Replace(npm[i].data, []byte(`"version": "`+about.Version+`"`), []byte(`"version": "`+m.number()+`"`), 1)
		}
	}
	for i := range crate {
		if path.Base(crate[i].name) == "Cargo.toml" {
			at := crateVersion.FindIndex(crate[i].data)
			if at == nil {
				return errors.New("guest/rust/Cargo.toml has no version")
			}
			crate[i].data = slices.Concat(crate[i].data[:at[0]], []byte(`version = "`+m.number()+`"`), crate[i].data[at[1]:])
		}
	}
	for name, entries := range map[string][]entry{"kubewasm-npm-" + m.number() + ".tgz": npm, "kubewasm-" + m.number() + ".crate": crate} {
		compressed, _, err := pack(m.time, entries...)
		if err := errors.Join(err, m.write(name, compressed)); err != nil {
			return err
		}
	}
	return nil
}
