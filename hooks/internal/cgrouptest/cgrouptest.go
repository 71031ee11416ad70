// Package cgrouptest creates cgroups of the kernel for tests, in a separate subtree, and removes
// them afterwards.
package cgrouptest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Mount is the directory of the hierarchies.
const Mount = "/sys/fs/cgroup"

// Tree is a subtree of the kernel's cgroups.
type Tree struct {
	t testing.TB
	// Root is the subtree's path below Mount, "kubewasm-123".
	Root string
	// V2 reports whether the kernel offers cgroup v2.
	V2 bool
}

// v1 lists the controllers that a test on cgroup v1 needs.
var v1 = []string{"cpu", "cpuset", "memory"}

// New creates a subtree. It skips the test if none can be created: without root, on other systems
// than Linux, or in a container with read-only cgroups. With CI set that is a failure.
func New(t testing.TB) *Tree {
	t.Helper()
	no := func(why string) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatalf("no cgroups for the test: %s", why)
		}
		t.Skipf("no cgroups for the test: %s", why)
	}
	tree := &Tree{t: t, Root: "kubewasm-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	switch _, err := os.Stat(filepath.Join(Mount, "cgroup.controllers")); {
	case err == nil:
		tree.V2 = true
		// A cgroup has only the controllers enabled by the root.
		if err := tree.enable(""); err != nil {
			no(err.Error())
		}
	default:
		for _, c := range v1 {
			if _, err := os.Stat(filepath.Join(Mount, c, "cgroup.procs")); err != nil {
				no(err.Error())
			}
		}
	}
	t.Cleanup(tree.remove)
	if err := tree.mkdir(tree.Root); err != nil {
		no(err.Error())
	}
	return tree
}

// hierarchies returns the directories that hold the subtree.
func (tr *Tree) hierarchies() []string {
	if tr.V2 {
		return []string{Mount}
	}
	var dirs []string
	for _, c := range v1 {
		dirs = append(dirs, filepath.Join(Mount, c))
	}
	return dirs
}

// enable enables all controllers of a cgroup of v2 for its children.
func (tr *Tree) enable(cgroup string) error {
	b, err := os.ReadFile(filepath.Join(Mount, cgroup, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(b)) {
		if slices.Contains([]string{"cpu", "cpuset", "memory", "io", "pids"}, c) {
			if err := os.WriteFile(filepath.Join(Mount, cgroup, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tr *Tree) mkdir(cgroup string) error {
	if parent := filepath.Dir(cgroup); tr.V2 && parent != "." {
		// Only once there are children, since a cgroup that enables controllers takes no processes.
		if err := tr.enable(parent); err != nil {
			return err
		}
	}
	for _, dir := range tr.hierarchies() {
		if err := os.Mkdir(filepath.Join(dir, cgroup), 0o755); err != nil {
			return err
		}
		// A cpuset of v1 is empty at first, and then takes no processes.
		if strings.HasSuffix(dir, "/cpuset") {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(filepath.Join(dir, filepath.Dir(cgroup), file), filepath.Join(dir, cgroup, file)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inherit copies the parent's list, which the code under test may change at the same time.
func inherit(parent, file string) (err error) {
	for range 100 {
		var b []byte
		if b, err = os.ReadFile(parent); err != nil {
			return err
		}
		if err = os.WriteFile(file, b, 0); !errors.Is(err, fs.ErrPermission) {
			break
		}
	}
	return err
}

// Make creates a cgroup below the subtree's root, with its ancestors, and returns its path below
// Mount.
func (tr *Tree) Make(cgroup string) string {
	tr.t.Helper()
	at := tr.Root
	for name := range strings.SplitSeq(cgroup, "/") {
		at += "/" + name
		if err := tr.mkdir(at); err != nil && !errors.Is(err, fs.ErrExist) {
			tr.t.Fatal(err)
		}
	}
	return at
}

// Path returns a file of a cgroup, by its path below Mount. On v1 the file's name determines the
// controller.
func (tr *Tree) Path(cgroup, file string) string {
	if tr.V2 {
		return filepath.Join(Mount, cgroup, file)
	}
	controller, _, _ := strings.Cut(file, ".")
	if controller == "cgroup" {
		controller = "cpu"
	}
	return filepath.Join(Mount, controller, cgroup, file)
}

// Read returns the contents of a file, without surrounding white space.
func (tr *Tree) Read(cgroup, file string) string {
	tr.t.Helper()
	b, err := os.ReadFile(tr.Path(cgroup, file))
	if err != nil {
		tr.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Write writes a file, as another writer would.
func (tr *Tree) Write(cgroup, file, value string) {
	tr.t.Helper()
	f, err := os.OpenFile(tr.Path(cgroup, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		tr.t.Fatal(err)
	}
}

// Has reports whether the kernel has a file for the cgroup.
func (tr *Tree) Has(cgroup, file string) bool {
	_, err := os.Stat(tr.Path(cgroup, file))
	return err == nil
}

// Process starts a process in a cgroup of each hierarchy. It ends with the test.
func (tr *Tree) Process(cgroup string) (pid int) {
	tr.t.Helper()
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for _, dir := range tr.hierarchies() {
		if err := os.WriteFile(filepath.Join(dir, cgroup, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			tr.t.Fatal(err)
		}
	}
	return cmd.Process.Pid
}

// Remove removes a cgroup and those below it.
func (tr *Tree) Remove(cgroup string) {
	tr.t.Helper()
	for _, dir := range tr.hierarchies() {
		if err := removeAll(filepath.Join(dir, cgroup)); err != nil {
			tr.t.Fatal(err)
		}
	}
}

func (tr *Tree) remove() {
	for _, dir := range tr.hierarchies() {
		// A killed process leaves its cgroup a moment later.
		var err error
		for range 100 {
			if err = removeAll(filepath.Join(dir, tr.Root)); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			tr.t.Errorf("remove the test's cgroups: %v", err)
		}
	}
}

// removeAll removes only directories, since the files are the kernel's.
func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
