//go:build !wasip1

package hostcall

import "os"

func config([]byte) uint32 { return 0 }

func statusReason(string) {}

func log(_ int32, msg string) { os.Stderr.WriteString(msg + "\n") }
