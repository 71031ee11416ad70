package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/host/configfile"
)

// Config configures the recording of a plugin's calls: its directory and the selection of calls. In
// a configuration file it is the field record of a plugin.
type Config struct {
	// Path is the directory of the recording, which is made with mode 0700. Plugins may share it.
	// Plugins that differ in another field write separate files, and the smallest MaxBytes and
	// MaxAge of them apply to the whole directory.
	Path string `json:"path"`
	// MaxBytes is the maximum size of the recording on disk: the oldest segment is removed for a
	// new one. Default 1 GiB, at least 1 MiB.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// MaxAge is the time that a segment is kept after its last call; 0 means until MaxBytes.
	MaxAge time.Duration `json:"maxAge,omitempty"`
	// Rate is the share of sequences that are recorded, more than 0 and at most 1, which is the
	// default. A sequence is the calls of one instance from a reset to the next, so that each of
	// them can be replayed.
	Rate float64 `json:"rate,omitempty"`
	// Only restricts the recording to sequences with a call that failed, or with one that
	// failed or was denied. Empty records all.
	Only Selection `json:"only,omitempty"`
	// SequenceCalls is the number of calls after which an instance is reset, and the next
	// sequence begins. Default 4096, and 256 with Only.
	SequenceCalls int `json:"sequenceCalls,omitempty"`
	// QueueBytes is the maximum size of calls that wait to be written. A call that finds no room is
	// dropped and counted. Default 64 MiB.
	QueueBytes int64 `json:"queueBytes,omitempty"`
	// Redact is called with all data of a call before it is written, piece by piece: what crossed
	// the boundary, the output of the guest, and the text of a trap. The plugin and the function are
	// the call's. It may overwrite the bytes. It is called on the goroutine that writes, after the
	// data of Secrets are masked. nil changes nothing.
	Redact func(plugin, function string, data []byte) `json:"-"`
	// Report is called with the reason when calls are no longer recorded, at most once a minute,
	// and with nil when they are recorded again. It is called on the goroutine that writes; nil
	// drops it.
	Report func(err error) `json:"-"`
}

// Selection selects the sequences that are written.
type Selection string

const (
	// Failures are sequences with a call that trapped, was stopped, or returned an error.
	Failures Selection = "failures"
	// Denials are Failures, and sequences with a call that refused: a Pod for a Node, a
	// request, a configuration.
	Denials Selection = "denials"
)

const minBytes = 1 << 20

// Check returns every mistake of the configuration.
func (c *Config) Check() (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Path == "" {
		fail("record.path is empty")
	}
	if c.MaxBytes != 0 && c.MaxBytes < minBytes {
		fail("record.maxBytes is %d, less than %d", c.MaxBytes, minBytes)
	}
	if c.MaxAge < 0 {
		fail("record.maxAge is %s, less than 0", c.MaxAge)
	}
	if !(c.Rate >= 0 && c.Rate <= 1) {
		fail("record.rate is %g, want more than 0 and at most 1", c.Rate)
	}
	if known := []Selection{"", Failures, Denials}; !slices.Contains(known, c.Only) {
		fail("record.only is %q, want %s or %s", string(c.Only), Failures, Denials)
	}
	if c.SequenceCalls < 0 {
		fail("record.sequenceCalls is %d, less than 0", c.SequenceCalls)
	}
	if c.QueueBytes < 0 {
		fail("record.queueBytes is %d, less than 0", c.QueueBytes)
	}
	return errs
}

// fields is Config without its methods.
type fields Config

// MarshalJSON writes durations as texts, such as "24h0m0s".
func (c Config) MarshalJSON() ([]byte, error) { return configfile.Marshal(fields(c)) }

// UnmarshalJSON reads the output of MarshalJSON, see package configfile.
func (c *Config) UnmarshalJSON(data []byte) error { return configfile.JSON(data, (*fields)(c)) }
