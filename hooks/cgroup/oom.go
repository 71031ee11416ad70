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

// oomScoreAdj plans the score for the processes of the cgroup. Processes created meanwhile inherit
// it from their parents.
func (p *plan) oomScoreAdj(want int64) {
	s, pids := p.processes(procsFile)
	if s == nil {
		return
	}
	to := strconv.FormatInt(want, 10)
	for i, pid := range pids.numbers {
		path := filepath.Join(p.applier.proc, pid, oomScoreAdj)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // The process has ended.
		}
		if err != nil {
			p.fail(&FileError{Op: "read", File: path, Err: cause(err)})
			continue
		}
		if from := strings.TrimSpace(string(b)); from != to {
			p.outside(s, path, from, to, func() error {
				return pids.ifStill(i, func(process *os.Root) error { return writeOOMScoreAdj(process, path, to) })
			})
		}
	}
}

const oomScoreAdj = "oom_score_adj"

// The files that list the processes and the threads of a cgroup.
const procsFile, threadsV1, threadsV2 = "cgroup.procs", "tasks", "cgroup.threads"

// threadsFile is the file that lists the threads of a cgroup.
func (p *plan) threadsFile() string {
	if p.applier.version == V2 {
		return threadsV2
	}
	return threadsV1
}

// processes returns the setting of a file that lists processes or threads, and the list; the
// setting is nil if the file is left alone or cannot be read, which adds an error.
func (p *plan) processes(file string) (*setting, *roll) {
	// Any hierarchy will do: the processes of a container are in the same cgroup of each.
	controller := ""
	if p.applier.controllers != nil {
		for _, name := range v1Controllers {
			if p.applier.controllers[name] != nil {
				controller = name
				break
			}
		}
	}
	// The file does not stay open: one read of a list returns only whole lines of a page, and for a
	// file that was read before, cgroup v1 returns the list of a second ago.
	s, raw := p.readOf(controller, file, maxThreads, nil)
	if s == nil {
		return nil, nil
	}
	numbers := strings.Fields(raw)
	if slices.Contains(numbers, "0") {
		p.fail(fmt.Errorf("apply %s to cgroup %q: its processes are in another PID namespace: %w", p.field, p.cgroup, errUnsupported))
		return nil, nil
	}
	for _, n := range numbers {
		if _, err := strconv.ParseInt(n, 10, 32); err != nil {
			p.fail(&FileError{Op: "read", File: s.dir.path(file), Err: fmt.Errorf("%q is no process", n)})
			return nil, nil
		}
	}
	r := &roll{proc: p.applier.proc, dir: s.dir, file: file, numbers: numbers}
	p.rolls = append(p.rolls, r)
	return s, r
}

// roll lists the processes or threads of a cgroup. By the time of a write, a number may belong to
// another process, so the list is read again before each batch of writes.
type roll struct {
	proc    string
	dir     *directory
	file    string
	numbers []string
	// from and to bound the numbers that were read again; members holds the numbers still listed,
	// with their directories in proc, nil if there is none.
	from, to int
	members  map[string]*os.Root
}

// rollBatch is the number of processes covered by one further read of the list.
const rollBatch = 32

// ifStill calls write for the number at i if the cgroup still lists it.
//
// An open directory of proc belongs to one process, even after its number is reused. It is opened
// before the list is read. So if its process is still alive then, the number in the list is that
// process.
func (r *roll) ifStill(i int, write func(process *os.Root) error) error {
	if i < r.from || i >= r.to {
		r.readAgain(i)
	}
	process, is := r.members[r.numbers[i]]
	if !is {
		return nil // The process has ended, or moved to another cgroup.
	}
	return write(process)
}

// readAgain opens the directories of the next processes, and reads the list again.
func (r *roll) readAgain(from int) {
	r.close()
	r.from, r.to, r.members = from, min(from+rollBatch, len(r.numbers)), map[string]*os.Root{}
	opened := map[string]*os.Root{}
	for _, n := range r.numbers[r.from:r.to] {
		opened[n], _ = os.OpenRoot(filepath.Join(r.proc, n))
	}
	list, _ := r.dir.read(r.file, maxThreads, nil) // Without a list, the cgroup counts as empty.
	for n := range strings.FieldsSeq(list) {
		if dir, ok := opened[n]; ok {
			r.members[n] = dir
			delete(opened, n)
		}
	}
	for _, dir := range opened {
		if dir != nil {
			dir.Close()
		}
	}
}

func (r *roll) close() {
	for _, dir := range r.members {
		if dir != nil {
			dir.Close()
		}
	}
	r.members, r.from, r.to = nil, 0, 0
}

// writeOOMScoreAdj writes a process's score by its directory, which is nil if the process has
// ended. An ended process needs no score.
func writeOOMScoreAdj(process *os.Root, path, value string) error {
	if process == nil {
		return nil
	}
	f, err := process.OpenFile(oomScoreAdj, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return &FileError{Op: "write", File: path, Value: value, Err: cause(err)}
}
