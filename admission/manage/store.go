package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// store keeps what the management API loaded: a file of JSON for each plugin, and
// one for each module, named by its digest.
type store struct{ dir string }

// kept is a plugin as it is kept.
type kept struct {
	Spec     PluginSpec `json:"spec"`
	Digest   string     `json:"digest"`
	Disabled bool       `json:"disabled,omitempty"`
	Versions []Version  `json:"versions"`
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o700); err != nil {
		return nil, err
	}
	return &store{dir}, nil
}

func (s *store) pluginFile(name string) string { return filepath.Join(s.dir, name+".json") }
func (s *store) moduleFile(digest string) string {
	return filepath.Join(s.dir, "modules", digest+".wasm")
}

// read returns the plugins that are kept, and what is wrong with the others, by
// their names.
func (s *store) read() (list []kept, broken map[string]error, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	broken = map[string]error{}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || checkName("plugin", name) != nil {
			continue // Not one of ours.
		}
		file := s.pluginFile(name)
		data, err := os.ReadFile(file)
		var k kept
		if err == nil {
			err = json.Unmarshal(data, &k)
		}
		if err == nil && k.Spec.Name != name {
			err = fmt.Errorf("it is of plugin %q", k.Spec.Name)
		}
		if err != nil {
			broken[name] = fmt.Errorf("%s: %w", file, err)
			continue
		}
		list = append(list, k)
	}
	return list, broken, nil
}

// module reads a module and checks that it is the one.
func (s *store) module(digest string) ([]byte, error) {
	if s == nil || len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("module %.80q: %w", digest, ErrNotFound)
	}
	module, err := os.ReadFile(s.moduleFile(digest))
	if err != nil {
		return nil, err
	}
	if got := digestOf(module); got != digest {
		return nil, fmt.Errorf("module %s: sha256 is %s", s.moduleFile(digest), got)
	}
	return module, nil
}

// write keeps a plugin; module is that of its digest, nil if it is there already.
func (s *store) write(k kept, module []byte) error {
	if module != nil {
		if err := replaceFile(s.moduleFile(k.Digest), module); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(s.pluginFile(k.Spec.Name), data); err != nil {
		return err
	}
	return s.sweep()
}

func (s *store) remove(name string) error {
	if err := os.Remove(s.pluginFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.sweep()
}

// sweep removes modules that no plugin has any more.
func (s *store) sweep() error {
	list, broken, err := s.read()
	if err != nil || len(broken) != 0 {
		return err // What cannot be read may have any of them.
	}
	used := map[string]bool{}
	for _, k := range list {
		used[k.Digest] = true
		for _, v := range k.Versions {
			used[v.Digest] = true
		}
	}
	files, err := os.ReadDir(filepath.Join(s.dir, "modules"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if digest, ok := strings.CutSuffix(f.Name(), ".wasm"); ok && !used[digest] {
			if err := os.Remove(s.moduleFile(digest)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceFile writes a file so that it is the old one or the new one whenever the
// machine stops.
func replaceFile(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // It has another name when all went well.
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
