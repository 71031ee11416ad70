package wasmbin_test

import (
	"github.com/kubewasm/kubewasm/internal/gowasm"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

func init() { wasmbin.TestPass, wasmbin.TestCoroutines = gowasm.Optimize, &gowasm.Coroutines }
