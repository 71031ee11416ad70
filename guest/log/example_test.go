package log_test

import "github.com/kubewasm/kubewasm/guest/log"

// Natively the line goes to standard error, as a host's log would show it.
func ExampleInfo() {
	log.Info("zone decided", "pod", "web", "zones", 2)
	// Output:
}
