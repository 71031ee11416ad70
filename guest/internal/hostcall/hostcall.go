// Package hostcall holds the host functions that every kind of plugin uses.
//
// Natively, under go test, there is no host: log lines go to standard error,
// and the test sets the fields of the plugin's struct itself.
package hostcall

import "github.com/kubewasm/kubewasm/abi"

// Config returns the plugin's configuration, valid until the guest's next request to the host.
func Config() []byte { return scratch.Fill(config) }

// StatusReason tells the host the reason why the running function does not succeed.
func StatusReason(reason string) { statusReason(reason) }

// Log writes a message to the host's log. The levels are those of log/slog.
func Log(level int32, msg string) { log(level, msg) }

// scratch is the buffer of all host calls whose answers are decoded at once.
var scratch abi.Buffer
