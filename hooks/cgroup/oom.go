package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// oomScoreAdj plans the processes of the cgroup. Those that are born meanwhile
// inherit it from their parents.
func (p *plan) oomScoreAdj(want int64) {
	s, pids := p.processes(procsFile)
	if s == nil {
		return
	}
	to := strconv.FormatInt(want, 10)
	for _, pid := range pids {
		path := filepath.Join(p.applier.proc, pid, "oom_score_adj")
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // It has ended.
		}
		if err != nil {
			p.fail(&FileError{Op: "read", File: path, Err: cause(err)})
			continue
		}
		if from := strings.TrimSpace(string(b)); from != to {
			p.outside(s, path, from, to, func() error { return writeOOMScoreAdj(path, to) })
		}
	}
}

// The files that list the processes and the threads of a cgroup.
const procsFile, threadsV1, threadsV2 = "cgroup.procs", "tasks", "cgroup.threads"

// threadsFile is the file that lists the threads of a cgroup.
func (p *plan) threadsFile() string {
	if p.applier.version == V2 {
		return threadsV2
	}
	return threadsV1
}

// processes returns the setting of a file that lists processes or threads, and what it
// lists; the setting is nil if it is left alone or cannot be read, which is noted.
func (p *plan) processes(file string) (*setting, []string) {
	// Whichever hierarchy there is: a container's processes are in the same
	// cgroup of each.
	controller := ""
	if p.applier.controllers != nil {
		for _, name := range v1Controllers {
			if p.applier.controllers[name] != nil {
				controller = name
				break
			}
		}
	}
	// It does not stay open: one read of a list has no more than whole lines of a page,
	// and cgroup v1 reads the list of a second ago to a file that was read before.
	s, raw := p.readOf(controller, file, maxThreads, nil)
	if s == nil {
		return nil, nil
	}
	numbers := strings.Fields(raw)
	if slices.Contains(numbers, "0") {
		p.fail(fmt.Errorf("apply %s to cgroup %q: its processes are in another PID namespace: %w", p.field, p.cgroup, ErrUnsupported))
		return nil, nil
	}
	for _, n := range numbers {
		if _, err := strconv.ParseInt(n, 10, 32); err != nil {
			p.fail(&FileError{Op: "read", File: s.dir.path(file), Err: fmt.Errorf("%q is no process", n)})
			return nil, nil
		}
	}
	return s, numbers
}

// writeOOMScoreAdj writes a process's score. One that has ended needs none.
func writeOOMScoreAdj(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return &FileError{Op: "write", File: path, Value: value, Err: cause(err)}
}
