//go:build !wasip1

package state

import "github.com/kubewasm/kubewasm/internal/nativehost"

// Natively there is no state unless a kit for tests has made one: it is empty, and writes have no
// effect.

func hostGet(key string) []byte { return nativehost.CurrentState().Get(key) }

func hostPut(key string, value []byte, version int64) uint32 {
	return nativehost.CurrentState().Put(key, value, version)
}

func hostDelete(key string, version int64) uint32 {
	return nativehost.CurrentState().Delete(key, version)
}

func hostAdd(key string, delta, limit int64) uint32 {
	return nativehost.CurrentState().Add(key, delta, limit)
}

func hostList(prefix, after string) []byte { return nativehost.CurrentState().List(prefix, after) }

func hostKeep() { nativehost.CurrentState().Keep() }

// Natively each test has a state of its own.
func filled() bool { return false }

func setFilled() {}
