package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// maxGroup is the maximum length of a group's name.
const maxGroup = 128

// checkResctrlGroup refuses names that cannot be those of a directory, and the kernel's
// directories.
func checkResctrlGroup(group string) error {
	switch {
	case group == "" || len(group) > maxGroup:
		return fmt.Errorf("the name has %d bytes, want 1 to %d", len(group), maxGroup)
	case group[0] == '.' || strings.ContainsFunc(group, notFileName):
		return fmt.Errorf(`%.200q is not a name of letters, digits, "_", "-" and "."`, group)
	case group == "info" || group == "mon_groups" || group == "mon_data":
		return fmt.Errorf("%q is the kernel's", group)
	}
	return nil
}

// schema is the allocation of a resource, "L3" or "MB", by the domains' numbers.
type schema struct {
	resource string
	domains  []domain
}

type domain struct {
	id    uint64
	value string
}

// parseSchemata parses an allocation in the kernel's notation, without the spaces that align the
// names.
func parseSchemata(s string) (schemata []schema, err error) {
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\n")
		resource, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || resource == "" || strings.ContainsFunc(resource, func(r rune) bool { return notFileName(r) || r == '.' || r == '-' }) {
			return nil, fmt.Errorf("%.100q is not a line like \"L3:0=ff;1=ff\"", line)
		}
		r := schema{resource: resource}
		for item := range strings.SplitSeq(rest, ";") {
			number, value, _ := strings.Cut(item, "=")
			id, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
			// A mask or a percentage; only the kernel distinguishes them.
			if _, err2 := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil || err2 != nil {
				return nil, fmt.Errorf("%.100q is not a line like \"L3:0=ff;1=ff\"", line)
			}
			r.domains = append(r.domains, domain{id, canonicalMask(value)})
		}
		schemata = append(schemata, r)
	}
	return schemata, nil
}

// canonicalMask returns a number without insignificant differences of notation.
func canonicalMask(value string) string {
	if value = strings.ToLower(strings.TrimLeft(strings.TrimSpace(value), "0")); value == "" {
		return "0"
	}
	return value
}

func checkSchemata(s string) error {
	if s == "" || len(s) > maxValue {
		return fmt.Errorf("the value has %d bytes, want 1 to %d", len(s), maxValue)
	}
	_, err := parseSchemata(s)
	return err
}

// allocated reports whether have includes all of want.
func allocated(have, want []schema) bool {
	for _, w := range want {
		i := slices.IndexFunc(have, func(h schema) bool { return h.resource == w.resource })
		if i < 0 {
			return false
		}
		for _, d := range w.domains {
			if !slices.Contains(have[i].domains, d) {
				return false
			}
		}
	}
	return true
}

// resctrlTasks is the file with the threads of a group.
const resctrlTasks = "tasks"

// resctrl plans the group of the cgroup's processes, with its schemata unless that is nil.
// Processes created meanwhile are in their parents' groups.
func (p *plan) resctrl(group string, schemata *string) {
	if schemata != nil {
		p.field |= hookmsg.FieldResctrlSchemata
	}
	for _, file := range [...]string{"", "schemata", resctrlTasks} {
		if p.skip != nil && p.skip(p.cgroup, p.field, file) {
			return
		}
	}
	s, threads := p.processes(p.threadsFile())
	if s == nil {
		return
	}
	// Callers other than the engine may not have checked it.
	if err := checkResctrlGroup(group); err != nil {
		p.fail(fmt.Errorf("apply resctrl_group to cgroup %q: %w", p.cgroup, err))
		return
	}
	root, err := os.OpenRoot(p.applier.resctrl)
	if err == nil {
		defer root.Close()
		_, err = root.Lstat("schemata") // Without schemata, it is only an empty directory.
	}
	if errors.Is(err, fs.ErrNotExist) {
		p.fail(fmt.Errorf("apply resctrl_group to cgroup %q: %s is not mounted: %w", p.cgroup, p.applier.resctrl, errUnsupported))
		return
	}
	path := func(file string) string { return filepath.Join(p.applier.resctrl, group, file) }
	fail := func(op, file string, err error) {
		p.fail(&FileError{Op: op, File: path(file), Err: cause(err)})
	}
	if err != nil {
		fail("open", "", err)
		return
	}
	info, err := root.Lstat(group)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case fresh:
		p.outside(s, path(""), "", group, func() error {
			return p.applier.inResctrl("", func(root *os.Root) error { return root.Mkdir(group, 0o755) })
		})
	case err != nil:
		fail("open", "", err)
		return
	case !info.IsDir():
		fail("open", "", fmt.Errorf("not a directory: %w", errEscapes))
		return
	}
	if schemata != nil {
		want, err := parseSchemata(*schemata)
		if err != nil {
			p.fail(fmt.Errorf("apply resctrl_schemata to cgroup %q: %w", p.cgroup, err))
			return
		}
		from := ""
		if !fresh {
			if from, err = readIn(root, group+"/schemata"); err != nil {
				fail("read", "schemata", err)
				return
			}
		}
		if have, err := parseSchemata(from); err != nil || !allocated(have, want) {
			to := strings.TrimRight(*schemata, "\n")
			p.outside(s, path("schemata"), strings.TrimSpace(from), to, func() error { return p.applier.writeResctrl(group, "schemata", to+"\n", os.O_TRUNC) })
		}
	}
	in := map[string]bool{}
	if !fresh {
		tasks, err := readIn(root, group+"/"+resctrlTasks)
		if err != nil {
			fail("read", resctrlTasks, err)
			return
		}
		for task := range strings.FieldsSeq(tasks) {
			in[task] = true
		}
	}
	for i, thread := range threads.numbers {
		if !in[thread] {
			p.outside(s, path(resctrlTasks), "", thread, func() error {
				return threads.ifStill(i, func(*os.Root) error {
					err := p.applier.writeResctrl(group, resctrlTasks, thread+"\n", os.O_APPEND)
					if errors.Is(err, syscall.ESRCH) {
						return nil // The thread has ended.
					}
					return err
				})
			})
		}
	}
}

// readIn reads a file below a directory. Lists of a cgroup's threads may be longer than the bounds
// of values.
func readIn(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxThreads))
	return string(b), err
}

// maxThreads is the maximum number of bytes read of a list of threads.
const maxThreads = 16 << 20

// inResctrl calls f with the directory of a group, or with the root of resctrl if group is empty.
func (a *Applier) inResctrl(group string, f func(*os.Root) error) error {
	root, err := os.OpenRoot(filepath.Join(a.resctrl, group))
	if err != nil {
		return &FileError{Op: "open", File: filepath.Join(a.resctrl, group), Err: cause(err)}
	}
	defer root.Close()
	return f(root)
}

// writeResctrl writes to a file of a group in one call, as the kernel requires. The flag describes
// the kernel's behavior: it replaces an allocation, and adds a task.
func (a *Applier) writeResctrl(group, file, value string, flag int) error {
	return a.inResctrl(group, func(root *os.Root) error {
		f, err := root.OpenFile(file, os.O_WRONLY|flag, 0)
		if err == nil {
			_, err = f.WriteString(value)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return &FileError{Op: "write", File: filepath.Join(a.resctrl, group, file), Value: value, Err: cause(err)}
		}
		return nil
	})
}
