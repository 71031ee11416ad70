package core

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/view"
)

const spansSize = unsafe.Sizeof(view.Spans{})

// untolerated is that of taint_native.go, in taint_wasm.s.
//
//go:noescape
func untolerated(memory view.Memory, taints []view.Spans, tolerations []terms) int
