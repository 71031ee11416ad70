package sched

import "reflect"

// Crossings returns how many objects the guest of p has fetched.
func Crossings(p Plugin) uint64 {
	return reflect.ValueOf(p).Field(0).Interface().(*extensions).plugin.crossings.Load()
}
