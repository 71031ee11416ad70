package state

import (
	"encoding/binary"
	"iter"
)

// Entry is an entry of the state.
type Entry struct {
	Key   string
	Value []byte
	// Version changes whenever the entry is written.
	Version uint64
}

// Int returns the number of a counter, 0 if the entry is none.
func (e Entry) Int() int64 {
	if len(e.Value) != 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(e.Value))
}

// anyVersion is the version that every entry has, also one that is not there.
const anyVersion = -1

// Get returns the entry with a key, of 1 to 512 bytes, and whether there is one.
func Get(key string) (Entry, bool) {
	b := hostGet(key)
	if len(b) < 8 {
		return Entry{}, false
	}
	return Entry{key, append([]byte{}, b[8:]...), binary.LittleEndian.Uint64(b)}, true
}

// Put writes an entry. It reports false if the state is full.
func Put(key string, value []byte) bool { return hostPut(key, value, anyVersion) == 0 }

// PutIf writes an entry if it has the version, or if there is none and the version is 0. It reports
// false if it has another, or the state is full.
func PutIf(key string, value []byte, version uint64) bool {
	return hostPut(key, value, int64(version)) == 0
}

// Delete deletes an entry, and reports whether there was one.
func Delete(key string) bool { return hostDelete(key, anyVersion) == 0 }

// DeleteIf deletes an entry if it has the version, and reports whether it had.
func DeleteIf(key string, version uint64) bool { return hostDelete(key, int64(version)) == 0 }

// Add adds to a counter, which is 0 if it is not there. It reports false, and adds nothing, if the
// sum would be above limit or, with a delta below 0, below it, or if the state is full. With
// [math.MaxInt64], and with [math.MinInt64] for a delta below 0, there is no limit. It panics if the
// entry was not written by Add.
func Add(key string, delta, limit int64) bool {
	switch hostAdd(key, delta, limit) {
	case 0:
		return true
	case 3:
		panic("state: " + key + " is no counter")
	}
	return false
}

// All returns the entries whose keys begin with prefix, in the order of their keys.
func All(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for after := ""; ; {
			page := append([]byte{}, hostList(prefix, after)...)
			if len(page) == 0 {
				return
			}
			for len(page) > 0 {
				k, v := binary.LittleEndian.Uint32(page), binary.LittleEndian.Uint32(page[4:])
				e := Entry{Version: binary.LittleEndian.Uint64(page[8:])}
				page = page[16:]
				e.Key, e.Value, page = string(page[:k]), page[k:k+v:k+v], page[k+v:]
				if after = e.Key; !yield(e) {
					return
				}
			}
		}
	}
}

// Keep has the writes of the call count also if it refuses, with Unschedulable,
// UnschedulableAndUnresolvable or Pending.
func Keep() { hostKeep() }

// onceKey is the entry of a state that is not new.
const onceKey = "\x00once"

// Once calls fill if the state is new, as after a restart of the scheduler: fill writes what is known
// from look-ups, such as the Pods that run. Its writes count with those of the call, and the next
// call calls fill again if they do not. A plugin calls Once first in each function that uses the
// state.
func Once(fill func()) {
	if filled() {
		return
	}
	if e, ok := Get(onceKey); ok {
		if e.Version != own { // Another call has written it, so it counts.
			setFilled()
		}
		return
	}
	fill()
	if Put(onceKey, nil) {
		e, _ := Get(onceKey)
		own = e.Version
	}
}

// own is the version of the entry onceKey that the instance has written last. It does not count if the
// call that has written it fails.
var own uint64
