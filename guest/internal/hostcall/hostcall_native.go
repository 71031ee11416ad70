//go:build !wasip1

package hostcall

import (
	"os"
	"strings"
)

func config([]byte) uint32 { return 0 }

func statusReason(string) {}

// log writes a line as a host with a plain logger would: what=why after the text.
func log(_ int32, line string) {
	parts := strings.Split(line, "\x00")
	msg := parts[0]
	for i, part := range parts[1:] {
		msg += string(" ="[i%2]) + part
	}
	os.Stderr.WriteString(msg + "\n")
}
