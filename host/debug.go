package host

import (
	"fmt"
	"os"
	"strings"
)

// debugVariable is the environment variable that turns on checks which help to find
// a fault in a host. NewRuntime reads it.
const debugVariable = "KUBEWASM_DEBUG"

// debugs returns the modes of the variable, which commas separate.
//
// With memory, the memory of an instance is hidden while no caller has it. Each call then costs two
// more system calls. Each closed instance keeps Limits.MemoryBytes of address space until the process
// ends. With process, all guests run in other processes.
func debugs() (memory, process bool, err error) {
	for mode := range strings.SplitSeq(os.Getenv(debugVariable), ",") {
		switch mode {
		case "":
		case "memory":
			memory = true
		case "process":
			process, err = true, checkWall()
		default:
			err = fmt.Errorf("read %s: mode is %q, want memory or process", debugVariable, mode)
		}
	}
	return memory, process, err
}
