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

// store keeps what the management API loaded: a record in JSON for each plugin, a
// file for each module, named by its digest, and the list of the plugins, which
// tells a record that is lost from one that never was. All of it belongs to the user
// of the process, and no other user may read or write it. One server uses a directory
// at a time.
type store struct {
	dir string
	// lock is open, and locked, for as long as the directory is in use.
	lock *os.File
}

// kept is the record of a plugin.
type kept struct {
	// SHA256 is the digest of the record without it. One that was written before
	// records had it has none.
	SHA256   string     `json:"sha256,omitempty"`
	Spec     PluginSpec `json:"spec"`
	Digest   string     `json:"digest"`
	Disabled bool       `json:"disabled,omitempty"`
	Versions []Version  `json:"versions"`
}

// sum returns what the digest of a record is.
func (k kept) sum() (string, error) {
	k.SHA256 = ""
	data, err := json.Marshal(k)
	if err != nil {
		return "", err
	}
	return digestOf(data), nil
}

// openStore makes the directory if it is missing, and makes it private. One that
// others could have written to is refused, and so is that of another user, and one that
// another server uses.
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
		// What was being written when the process ended.
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
		_ = s.lock.Close() // Nothing was written to it.
	}
}

func (s *store) modules() string               { return filepath.Join(s.dir, "modules") }
func (s *store) pluginFile(name string) string { return filepath.Join(s.dir, name+".json") }

// listFile is the file of the list. No name of a plugin makes one of its kind.
func (s *store) listFile() string { return filepath.Join(s.dir, "plugins.list") }
func (s *store) moduleFile(digest string) string {
	return filepath.Join(s.modules(), digest+".wasm")
}

// readFile reads a file of ours that has at most limit bytes.
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

// maxRecordBytes is the size of the largest record. What loads a plugin is smaller,
// and a record has some of its versions.
const maxRecordBytes = 2 * maxLoadBytes

// names returns the names of the list, and of the records that are there.
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

// list returns the names of the plugins that there should be, one in a line of the
// file, which ends with the digest of what is before it. Without the file there are
// none.
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

// setListed puts a name on the list or takes it off.
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

// read returns the plugins that are kept, and what is wrong with the others, by
// their names.
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
	// A version without a field that one before it had is not this version's.
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

// module reads a module and checks that it is the one.
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

// write keeps a plugin; module is that of its digest, nil if it is there already.
// Whenever the process ends, what is there is the plugin before or the one after:
// the module lies there before its record, and the record before it is on the list.
func (s *store) write(k kept, module []byte) error {
	if module != nil {
		if err := replaceFile(s.moduleFile(k.Digest), module); err != nil {
			return err
		}
	}
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

// replaceFile writes a file so that it is the old one or the new one whenever the
// machine stops, and the new one after it has returned.
func replaceFile(file string, data []byte) error {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // It has another name when all went well.
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return syncDir(dir)
}
