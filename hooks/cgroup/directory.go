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
	root *os.Root
	// hierarchy is the directory in which it was opened.
	hierarchy *os.Root
	// name is the path below the applier's root.
	name string
	// files are those that stay open for reading.
	files map[string]*os.File
}

// directories are directories that stay open with their files: opening a cgroup file costs
// ten times as much as reading it.
type directories struct {
	open map[string]map[string]*directory // By cgroup and controller.
	// files is the number of open files, room its limit.
	files, room int
}

func newDirectories(room int) *directories {
	return &directories{open: map[string]map[string]*directory{}, room: room}
}

func (ds *directories) close() {
	for cgroup := range ds.open {
		ds.forget(cgroup)
	}
}

// current reports whether an open directory is still the one of the cgroup's
// path.
func (d *directory) current(cgroup string) bool {
	is, err := d.root.Stat(".")
	if err != nil {
		return false
	}
	now, err := d.hierarchy.Lstat(cgroup)
	return err == nil && os.SameFile(is, now)
}

// left reports whether a directory without a file belongs to a cgroup that is gone, or is
// being removed: the kernel removes a cgroup's files first and its directory last.
func (d *directory) left(cgroup string) bool {
	if !d.current(cgroup) {
		return true
	}
	// To answer this, the kernel takes cgroup_mutex, which a removal holds from its first
	// file to its directory. If it cannot be read, there is no wait.
	os.ReadFile("/proc/self/cgroup")
	return !d.current(cgroup)
}

// forget closes the directories and files of a cgroup.
func (ds *directories) forget(cgroup string) {
	for _, d := range ds.open[cgroup] {
		ds.files -= len(d.files)
		d.close()
	}
	delete(ds.open, cgroup)
}

// openDirectory opens the directory that has a controller's files of a cgroup.
func (a *Applier) openDirectory(controller, cgroup string) (*directory, error) {
	root, name := a.root, cgroup
	if a.controllers != nil {
		name = controller + "/" + cgroup
		if root = cmp.Or(a.controllers[controller], a.others[controller]); root == nil {
			return nil, &FileError{Op: "open", File: controller, Err: fmt.Errorf("the controller is not mounted: %w: %w", ErrUnsupported, fs.ErrNotExist)}
		}
	}
	// os.Root follows no link that leads outside. The kernel makes none within the
	// hierarchy, so one that is found is refused as well.
	for i := range len(cgroup) + 1 {
		if i < len(cgroup) && cgroup[i] != '/' {
			continue
		}
		info, err := root.Lstat(cgroup[:i])
		if err != nil {
			return nil, &FileError{Op: "open", File: name, Err: cause(err)}
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, &FileError{Op: "open", File: name, Err: fmt.Errorf("%s is a symbolic link: %w", cgroup[:i], ErrEscapes)}
		}
	}
	dir, err := root.OpenRoot(cgroup)
	if err != nil {
		return nil, &FileError{Op: "open", File: name, Err: cause(err)}
	}
	return &directory{root: dir, hierarchy: root, name: name, files: map[string]*os.File{}}, nil
}

func (d *directory) close() {
	for _, f := range d.files {
		f.Close()
	}
	d.root.Close()
}

func (d *directory) path(file string) string { return d.name + "/" + file }

// maxFile is the most that is read of a file, in bytes. Cgroup files with a value are far
// shorter; any other file may have any size.
const maxFile = 64 << 10

// settledBytes is more than files with a value have. A file with as many is opened for
// each read.
const settledBytes = 4 << 10

// read returns the contents of a file, or so many bytes of it. If keep is not nil and has
// room, the file stays open for the next time.
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
		return "", &FileError{Op: "read", File: d.path(file), Err: cause(err)}
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && kept == nil && len(b) < settledBytes && keep != nil && keep.files < keep.room {
		keep.files++
		d.files[file] = f
	} else {
		f.Close()
	}
	if err != nil {
		return "", &FileError{Op: "read", File: d.path(file), Err: cause(err)}
	}
	return string(b), nil
}

// write writes a value in one call, as the kernel takes it.
//
// The file is not opened with O_TRUNC: a cgroup file needs none, and it would wake its
// watchers even if the write fails. A regular file, which has a size, unlike one of the
// kernel's, is truncated afterwards.
func (d *directory) write(file, value string) error {
	fail := func(err error) error {
		return &FileError{Op: "write", File: d.path(file), Value: value, Err: cause(err)}
	}
	f, err := d.openFile(file, os.O_WRONLY)
	if err != nil {
		return fail(err)
	}
	if value == "" {
		value = "\n" // The kernel takes no bytes for no write.
	}
	_, err = f.WriteString(value)
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.Size() > int64(len(value)) {
			err = f.Truncate(int64(len(value)))
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	return nil
}

func (d *directory) openFile(file string, flag int) (*os.File, error) {
	info, err := d.root.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s): %w", info.Mode().Type(), ErrEscapes)
	}
	return d.root.OpenFile(file, flag, 0)
}

// cause returns the kernel's answer, without the path that an fs.PathError repeats. Any
// other error of os.Root is about a path that leaves it.
func cause(err error) error {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, ErrEscapes), errors.Is(err, fs.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", ErrEscapes, err)
}
