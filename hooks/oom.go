package hooks

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
func (p *plan) oomScoreAdj(want *int64) {
	if want == nil {
		return
	}
	const file = "cgroup.procs"
	if p.skip != nil && p.skip(p.cgroup, p.field, file) {
		return
	}
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
	dir := p.directory(controller)
	if dir == nil {
		return
	}
	raw, err := dir.read(file)
	if err != nil {
		p.fail(err)
		return
	}
	s := &setting{dir: dir, cgroup: p.cgroup, field: p.field}
	p.reads = append(p.reads, reading{cgroup: p.cgroup, file: file, setting: s, raw: raw})
	pids := strings.Fields(raw)
	if slices.Contains(pids, "0") {
		p.fail(fmt.Errorf("apply oom_score_adj to cgroup %q: its processes are in another PID namespace: %w", p.cgroup, ErrUnsupported))
		return
	}
	to := strconv.FormatInt(*want, 10)
	for _, pid := range pids {
		process, err := strconv.Atoi(pid)
		if err != nil {
			p.fail(&FileError{Op: "read", File: dir.path(file), Err: fmt.Errorf("%q is no process", pid)})
			return
		}
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
			p.step(s, path, from, to, true)
			p.steps[len(p.steps)-1].process = process
		}
	}
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
