package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// directory is one cgroup in one hierarchy.
type directory struct {
	// root is nil unless the directory stays open.
	root *os.Root
	// hierarchy is the hierarchy in which the directory is opened by the path cgroup.
	hierarchy *os.Root
	cgroup    string
	// name is the path below the applier's root.
	name string
	// files holds the files that stay open for reading.
	files map[string]*os.File
}

// directories holds directories that stay open with their files, since opening a cgroup file costs
// ten times as much as reading it.
type directories struct {
	open map[string]map[string]*directory // By cgroup and controller.
	// files is the number of open files and directories, room its limit. Without room, files are
	// opened each time.
	files, room int
}

func newDirectories(room int) *directories {
	return &directories{open: map[string]map[string]*directory{}, room: room}
}

// forOnce is the room for directories in a single operation on few cgroups.
const forOnce = 64

// add takes a directory that was opened, and closes it if there is no room.
func (ds *directories) add(key string, d *directory) {
	if ds.files < ds.room {
		ds.files++
	} else {
		d.close()
		d.root = nil
	}
	if ds.open[d.cgroup] == nil {
		ds.open[d.cgroup] = map[string]*directory{}
	}
	ds.open[d.cgroup][key] = d
}

func (ds *directories) close() {
	for cgroup := range ds.open {
		ds.forget(cgroup)
	}
}

// current reports whether an open directory is still that of the cgroup's path.
func (d *directory) current(cgroup string) bool {
	if d.root == nil {
		_, err := d.hierarchy.Lstat(cgroup)
		return err == nil
	}
	is, err := d.root.Stat(".")
	if err != nil {
		return false
	}
	now, err := d.hierarchy.Lstat(cgroup)
	return err == nil && os.SameFile(is, now)
}

// left reports whether a directory without a file belongs to a cgroup that is gone or being
// removed: the kernel removes a cgroup's files first and its directory last.
func (d *directory) left(cgroup string) bool {
	if !d.current(cgroup) {
		return true
	}
	// A removal holds cgroup_mutex from its first file to its directory, and the kernel takes it
	// for this read, so the read waits for the removal. If the file cannot be read, there is no
	// wait.
	os.ReadFile("/proc/self/cgroup")
	return !d.current(cgroup)
}

// forget closes the directories and files of a cgroup.
func (ds *directories) forget(cgroup string) {
	for _, d := range ds.open[cgroup] {
		ds.files -= len(d.files)
		if d.root != nil {
			ds.files--
		}
		d.close()
	}
	delete(ds.open, cgroup)
}

// openDirectory opens the directory with a controller's files of a cgroup.
func (a *Applier) openDirectory(controller, cgroup string) (*directory, error) {
	root, name := a.root, cgroup
	if a.controllers != nil {
		name = controller + "/" + cgroup
		if root = cmp.Or(a.controllers[controller], a.others[controller]); root == nil {
			return nil, &FileError{Op: "open", File: controller, Err: fmt.Errorf("the controller is not mounted: %w: %w", errUnsupported, fs.ErrNotExist)}
		}
	}
	d := &directory{hierarchy: root, cgroup: cgroup, name: name, files: map[string]*os.File{}}
	var err error
	if d.root, err = d.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the directory. os.Root follows no link that leads outside. The kernel creates no links
// within the hierarchy, so those are refused as well.
func (d *directory) open() (*os.Root, error) {
	for i := range len(d.cgroup) + 1 {
		if i < len(d.cgroup) && d.cgroup[i] != '/' {
			continue
		}
		info, err := d.hierarchy.Lstat(d.cgroup[:i])
		if err != nil {
			return nil, &FileError{Op: "open", File: d.name, Err: cause(err)}
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, &FileError{Op: "open", File: d.name, Err: fmt.Errorf("%s is a symbolic link: %w", d.cgroup[:i], errEscapes)}
		}
	}
	root, err := d.hierarchy.OpenRoot(d.cgroup)
	if err != nil {
		return nil, &FileError{Op: "open", File: d.name, Err: cause(err)}
	}
	return root, nil
}

// opened returns the open directory, and a function to call when it is no longer needed.
func (d *directory) opened() (root *os.Root, done func(), err error) {
	if d.root != nil {
		return d.root, func() {}, nil
	}
	if root, err = d.open(); err != nil {
		return nil, nil, err
	}
	return root, func() { root.Close() }, nil
}

func (d *directory) close() {
	for _, f := range d.files {
		f.Close()
	}
	if d.root != nil {
		d.root.Close()
	}
}

func (d *directory) path(file string) string { return d.name + "/" + file }

// maxFile is the maximum number of bytes read of a file.
const maxFile = 64 << 10

// settledBytes is larger than any file with a value. A file of that size or more is opened for each
// read.
const settledBytes = 4 << 10

// read returns the contents of a file, at most the given number of bytes. If keep is not nil and
// has room, the file stays open.
func (d *directory) read(file string, most int64, keep *directories) (string, error) {
	kept := d.files[file]
	if kept != nil {
		var buf [settledBytes]byte
		if n, err := pread(kept, buf[:]); err == nil && n < len(buf) {
			return string(buf[:n]), nil
		}
	}
	f, err := d.openFile(file, os.O_RDONLY)
	if err != nil {
		return "", d.fail("read", file, "", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && kept == nil && len(b) < settledBytes && keep != nil && keep.files < keep.room {
		keep.files++
		d.files[file] = f
	} else {
		f.Close()
	}
	if err != nil {
		return "", d.fail("read", file, "", err)
	}
	return string(b), nil
}

// write writes a value in one call, as the kernel requires.
//
// The file is not opened with O_TRUNC: a cgroup file does not need it, and it would wake watchers
// even if the write fails. A regular file, which unlike those of the kernel has a size, is
// truncated afterwards.
func (d *directory) write(file, value string) error {
	f, err := d.openFile(file, os.O_WRONLY)
	if err != nil {
		return d.fail("write", file, value, err)
	}
	given := value
	if value == "" {
		value = "\n" // The kernel ignores a write of no bytes.
	}
	_, err = f.WriteString(value)
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.Size() > int64(len(value)) {
			err = f.Truncate(int64(len(value)))
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return d.fail("write", file, given, err)
	}
	return nil
}

// fail returns the error of an operation on a file, or on the directory itself.
func (d *directory) fail(op, file, value string, err error) error {
	if closed := (*FileError)(nil); errors.As(err, &closed) {
		return closed
	}
	return &FileError{Op: op, File: d.path(file), Value: value, Err: cause(err)}
}

func (d *directory) openFile(file string, flag int) (*os.File, error) {
	root, done, err := d.opened()
	if err != nil {
		return nil, err
	}
	defer done()
	info, err := root.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s): %w", info.Mode().Type(), errEscapes)
	}
	return root.OpenFile(file, flag, 0)
}

// cause returns the kernel's answer, without the path in an fs.PathError. Any other error of
// os.Root reports a path that leaves the root.
func cause(err error) error {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, errEscapes), errors.Is(err, fs.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", errEscapes, err)
}
