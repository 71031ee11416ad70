package host

import (
	"fmt"
	"os"
)

// debugVariable is the environment variable that turns on checks which help to find
// a fault in a host. NewRuntime reads it.
const debugVariable = "KUBEWASM_DEBUG"

// debugsMemory reports whether the memory of an instance is hidden while no caller has it. Each
// call then costs two more system calls. Each closed instance keeps Limits.MemoryBytes of address
// space until the process ends.
func debugsMemory() (bool, error) {
	switch mode := os.Getenv(debugVariable); mode {
	case "":
		return false, nil
	case "memory":
		return true, nil
	default:
		return false, fmt.Errorf("read %s: mode is %q, want memory", debugVariable, mode)
	}
}
