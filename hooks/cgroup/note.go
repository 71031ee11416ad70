package cgroup

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
)

// notePrefix begins the names of the extended attributes with notes. Only processes with
// CAP_SYS_ADMIN on the node can read and write such attributes.
const notePrefix = "trusted.kubewasm."

// maxNote is the maximum number of bytes of a note.
const maxNote = 16 << 10

// coreSchedNote is the name of the note on a group of core scheduling, whose text is the group.
const coreSchedNote = "core_sched"

// note records the text of a file before its first write in an extended attribute of the directory,
// which lasts as long as the cgroup. Later writes do not change it. A file system without such
// attributes keeps no notes.
func (d *directory) note(name, text string) {
	if len(text) > maxNote {
		return
	}
	d.onDirectory(func(f *os.File) { setAttribute(f, notePrefix+name, text) })
}

// onDirectory calls f with the open directory, unless it cannot be opened.
func (d *directory) onDirectory(f func(*os.File)) {
	root, done, err := d.opened()
	if err != nil {
		return
	}
	defer done()
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	f(dir)
}

// Notes are the decisions on a cgroup that this or an earlier process has written, of fields whose
// earlier values nothing else knows. The kernel keeps them as long as the cgroup, in extended
// attributes of its directories (trusted.kubewasm.FILE).
type Notes struct {
	// Files holds the texts of files of FieldUnified before their first write, by name.
	Files map[string]string
	// CoreSchedGroup is the group of the cgroup's threads, empty for none.
	CoreSchedGroup string
}

// Notes returns the notes on a cgroup. There are none if it is missing, if its hierarchy keeps no
// extended attributes, or without CAP_SYS_ADMIN.
func (a *Applier) Notes(cgroup string) (n Notes) {
	a.eachDirectory(cgroup, func(dir *os.File) {
		for _, name := range attributes(dir) {
			name, ok := strings.CutPrefix(name, notePrefix)
			if !ok {
				continue
			}
			text, ok := attribute(dir, notePrefix+name)
			switch {
			case !ok:
			case name == coreSchedNote:
				n.CoreSchedGroup = text
			default:
				if n.Files == nil {
					n.Files = map[string]string{}
				}
				n.Files[name] = text
			}
		}
	})
	return n
}

// GiveBack writes values that replace decisions, as [Applier.Apply] does, and removes the notes on
// their fields if all could be written. A CoreSchedGroup of "" takes the threads of the cgroup out
// of their group.
func (a *Applier) GiveBack(ctx context.Context, targets ...Target) (changes []Change, err error) {
	if changes, err = a.Apply(ctx, targets...); err != nil {
		return changes, err
	}
	for _, t := range targets {
		if t.Resources == nil {
			continue
		}
		names := slices.Collect(maps.Keys(t.Resources.Unified))
		if t.Resources.CoreSchedGroup != nil {
			names = append(names, coreSchedNote)
		}
		if len(names) == 0 {
			continue
		}
		a.eachDirectory(t.Cgroup, func(dir *os.File) {
			for _, name := range names {
				removeAttribute(dir, notePrefix+name)
			}
		})
	}
	return changes, nil
}

// eachDirectory calls f with each directory of a cgroup: one for each hierarchy.
func (a *Applier) eachDirectory(cgroup string, f func(*os.File)) {
	if checkCgroup(cgroup) != nil {
		return
	}
	controllers := append(slices.Collect(maps.Keys(a.controllers)), slices.Collect(maps.Keys(a.others))...)
	if a.controllers == nil {
		controllers = []string{""}
	}
	for _, controller := range controllers {
		if d, err := a.openDirectory(controller, cgroup); err == nil {
			d.onDirectory(f)
			d.close()
		}
	}
}
