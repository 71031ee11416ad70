package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/host/configfile"
)

// store keeps the plugins loaded by the management API: a record in JSON for each plugin, and a
// file for each module, named by its digest. A list of the plugins distinguishes a lost record from
// one that never existed. All files belong to the user of the process, and no other user may read
// or write them. Only one server may use a directory at a time.
type store struct {
	dir string
	// lock is open, and locked, as long as the directory is in use.
	lock *os.File
}

// kept is the record of a plugin.
type kept struct {
	// SHA256 is the digest of the record without it. Records of older versions have none.
	SHA256   string     `json:"sha256,omitempty"`
	Spec     PluginSpec `json:"spec"`
	Digest   string     `json:"digest"`
	Disabled bool       `json:"disabled,omitempty"`
	Versions []Version  `json:"versions"`
}

// sum returns the digest of a record.
func (k kept) sum() (string, error) {
	k.SHA256 = ""
	data, err := json.Marshal(k)
	if err != nil {
		return "", err
	}
	return digestOf(data), nil
}

// openStore creates the directory if it is missing, and makes it private. It refuses a directory
// that others could have written to, that belongs to another user, or that another server uses.
func openStore(dir string) (_ *store, err error) {
	s := &store{dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.MkdirAll(s.modules(), 0o700); err != nil {
		return nil, err
	}
	for _, d := range []string{dir, s.modules()} {
		info, err := os.Stat(d)
		if err != nil {
			return nil, err
		}
		if err := checkOwner(d, info); err != nil {
			return nil, err
		}
		if mode := info.Mode().Perm(); mode&0o022 != 0 {
			return nil, fmt.Errorf("%s has mode %#o: others can write to it, want 0700", d, mode)
		} else if mode&0o055 != 0 {
			if err := os.Chmod(d, mode&0o700); err != nil {
				return nil, err
			}
		}
		if s.lock == nil {
			if s.lock, err = lockFile(filepath.Join(dir, "lock")); err != nil {
				return nil, err
			}
		}
		// These files were being written when the process ended.
		files, err := filepath.Glob(filepath.Join(d, ".*-*"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// close lets another server use the directory.
func (s *store) close() {
	if s != nil && s.lock != nil {
		_ = s.lock.Close() // Nothing was written, so no error matters.
	}
}

func (s *store) modules() string               { return filepath.Join(s.dir, "modules") }
func (s *store) pluginFile(name string) string { return filepath.Join(s.dir, name+".json") }

// listFile is the file of the list. No name of a plugin leads to this file.
func (s *store) listFile() string { return filepath.Join(s.dir, "plugins.list") }
func (s *store) moduleFile(digest string) string {
	return filepath.Join(s.modules(), digest+".wasm")
}

// readFile reads a file of the store, of at most limit bytes.
func readFile(file string, limit int64) ([]byte, error) {
	f, err := openFile(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: mode is %s, want a regular file", file, info.Mode())
	}
	if err := checkOwner(file, info); err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o, want 0600", file, mode)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", file, limit)
	}
	return data, err
}

// maxRecordBytes is the size of the largest record. A request that loads a plugin is smaller, and a
// record has several versions of it.
const maxRecordBytes = 2 * maxLoadBytes

// names returns the names of the list, and of the existing records.
func (s *store) names() ([]string, error) {
	listed, err := s.list()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".json"); ok && checkName("plugin", name) == nil {
			listed = append(listed, name)
		}
	}
	slices.Sort(listed)
	return slices.Compact(listed), nil
}

// list returns the names of the expected plugins. The file has one name per line, and ends with the
// digest of the lines before. Without the file there are none.
func (s *store) list() ([]string, error) {
	data, err := readFile(s.listFile(), maxRecordBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
	last := len(lines) - 1
	if names := strings.Join(lines[:last], ""); lines[last] != digestOf([]byte(names)) {
		return nil, fmt.Errorf("%s is damaged: its last line is no digest of the others", s.listFile())
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\n")
	}
	return lines[:last], nil
}

// setListed adds a name to the list or removes it.
func (s *store) setListed(name string, on bool) error {
	listed, err := s.list()
	if err != nil || slices.Contains(listed, name) == on {
		return err
	}
	listed = slices.DeleteFunc(listed, func(other string) bool { return other == name })
	if on {
		listed = append(listed, name)
	}
	slices.Sort(listed)
	var lines strings.Builder
	for _, name := range listed {
		lines.WriteString(name + "\n")
	}
	return replaceFile(s.listFile(), []byte(lines.String()+digestOf([]byte(lines.String()))+"\n"))
}

// read returns the stored plugins, and the errors of the broken ones by name.
func (s *store) read() (list []kept, broken map[string]error, err error) {
	names, err := s.names()
	if err != nil {
		return nil, nil, err
	}
	broken = map[string]error{}
	for _, name := range names {
		k, err := s.record(name)
		if err != nil {
			broken[name] = err
			continue
		}
		list = append(list, k)
	}
	return list, broken, nil
}

func (s *store) record(name string) (k kept, err error) {
	file := s.pluginFile(name)
	data, err := readFile(file, maxRecordBytes)
	if err != nil {
		return k, err
	}
	// A field that an older version had and this one has not is an error.
	if err := configfile.JSON(data, &k); err != nil {
		return k, fmt.Errorf("%s: %w", file, err)
	}
	if k.Spec.Name != name {
		return k, fmt.Errorf("%s: it is of plugin %q", file, k.Spec.Name)
	}
	sum, err := k.sum()
	if err == nil && k.SHA256 != "" && k.SHA256 != sum {
		err = fmt.Errorf("sha256 of the record is %s, want %s", sum, k.SHA256)
	}
	if err != nil {
		return k, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

// module reads a module and checks its digest.
func (s *store) module(digest string) ([]byte, error) {
	if s == nil || len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("module %.80q: %w", digest, ErrNotFound)
	}
	module, err := readFile(s.moduleFile(digest), maxLoadBytes)
	if err != nil {
		return nil, err
	}
	if got := digestOf(module); got != digest {
		return nil, fmt.Errorf("module %s: sha256 is %s", s.moduleFile(digest), got)
	}
	return module, nil
}

// has reports whether the store has a module.
func (s *store) has(digest string) bool {
	_, err := os.Stat(s.moduleFile(digest))
	return err == nil
}

// put stores a module.
func (s *store) put(digest string, module []byte) error {
	return replaceFile(s.moduleFile(digest), module)
}

// write stores a plugin, whose module is stored already. Whenever the process ends, the store has
// either the old plugin or the new one. To that end, the module is written before its record, and
// the record before it is listed.
func (s *store) write(k kept) error {
	var err error
	if k.SHA256, err = k.sum(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(s.pluginFile(k.Spec.Name), data); err != nil {
		return err
	}
	if err := s.setListed(k.Spec.Name, true); err != nil {
		return err
	}
	return s.sweep()
}

func (s *store) remove(name string) error {
	if err := s.setListed(name, false); err != nil {
		return err
	}
	if err := os.Remove(s.pluginFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return err
	}
	return s.sweep()
}

// sweep removes modules that no plugin uses.
func (s *store) sweep() error {
	list, broken, err := s.read()
	if err != nil || len(broken) != 0 {
		return err // A broken record may use any module.
	}
	used := map[string]bool{}
	for _, k := range list {
		used[k.Digest] = true
		for _, v := range k.Versions {
			used[v.Digest] = true
		}
	}
	overrides, err := s.readOverrides()
	if err != nil {
		return nil // A broken list may use any module, and is no error of this change.
	}
	for _, o := range overrides {
		used[o.Digest] = true
	}
	files, err := os.ReadDir(s.modules())
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

// replaceFile replaces a file atomically. If the machine stops, the file is the old one or the new
// one, and the new one after replaceFile has returned.
func replaceFile(file string, data []byte) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // On success, it has been renamed.
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return syncDir(dir)
}
