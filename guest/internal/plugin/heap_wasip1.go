package plugin

import _ "unsafe" // for go:linkname

// smallHeap is the value of GOGC with which the heap grows to 1 MB before the first garbage
// collection, where Go lets it grow to 4.
const smallHeap = 25

// KeepHeapSmall is for plugins whose calls leave nothing behind, of which a process has many.
// A heap of more than 4 MB that is in use is collected four times as often.
func KeepHeapSmall() { setGCPercent(smallHeap) }

// runtime/debug, which has the same function, needs os and fmt: 0.2 MB of a guest. The runtime
// keeps the name for it.
//
//go:linkname setGCPercent runtime/debug.setGCPercent
func setGCPercent(percent int32) (before int32)
