package shadow

import (
	"cmp"
	"fmt"

	"github.com/kubewasm/kubewasm/host"
)

// Config names the module of the candidate and limits its cost. It is the field shadow of a
// plugin's configuration. Zero fields are the defaults.
type Config struct {
	// Module names the module of the candidate. It is not followed.
	Module host.ModuleConfig `json:"module,omitzero"`
	// GuestConfig is the configuration of the candidate; empty means that of the serving version.
	GuestConfig host.GuestConfig `json:"guestConfig,omitempty"`
	// Rate is the share of calls that are repeated, or of scheduling cycles. Default 0.1.
	Rate float64 `json:"rate,omitempty"`
	// CPU is the share of one processor that the candidate may take. Default 0.1.
	CPU float64 `json:"cpu,omitempty"`
	// MemoryBytes is the maximum memory of the candidate, its snapshot included. It does not count
	// for RuntimeConfig.MemoryBytes. Default 128 MiB.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Queue is the maximum number of calls that wait. Further ones are dropped and counted. Default
	// 16.
	Queue int `json:"queue,omitempty"`
	// QueueBytes is the maximum memory kept by calls that wait. Further ones are dropped and
	// counted. Default 32 MiB, the longest review of an API server. A webhook also keeps less than
	// an eighth of its memory for reviews.
	QueueBytes int64 `json:"queueBytes,omitempty"`
	// Examples is the number of differences of each group that are logged and kept. Default 3.
	Examples int `json:"examples,omitempty"`
	// Failures is the number of consecutive failed calls on the candidate that stops it. Default
	// 10.
	Failures int `json:"failures,omitempty"`

	// profile is the number of calls to profile, 0 for none.
	profile int
}

// Check returns every mistake of the configuration, including a module origin to which rt has no
// access. The messages begin with what.
func (c *Config) Check(rt *host.Runtime, what string) (errs []error) {
	fail := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(what+"."+format, args...))
		}
	}
	if _, err := rt.Source(c.Module, what+".module"); err != nil {
		errs = append(errs, err)
	}
	fail(c.Module.Follow, "module.follow: a candidate is not followed")
	fail(!(c.Rate >= 0 && c.Rate <= 1), "rate is %g, want more than 0 and at most 1", c.Rate)
	fail(!(c.CPU >= 0 && c.CPU <= 1), "cpu is %g, want more than 0 and at most 1", c.CPU)
	fail(c.MemoryBytes != 0 && c.MemoryBytes < minMemory, "memoryBytes is %d, less than %d", c.MemoryBytes, minMemory)
	fail(c.Queue < 0, "queue is %d, less than 0", c.Queue)
	fail(c.QueueBytes < 0, "queueBytes is %d, less than 0", c.QueueBytes)
	fail(c.Examples < 0, "examples is %d, less than 0", c.Examples)
	fail(c.Failures < 0, "failures is %d, less than 0", c.Failures)
	return errs
}

// minMemory is the minimum memory of a candidate: a page, and one of its snapshot.
const minMemory = 128 << 10

func (c Config) withDefaults() Config {
	c.Rate = cmp.Or(c.Rate, 0.1)
	c.CPU = cmp.Or(c.CPU, 0.1)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 128<<20)
	c.Queue = cmp.Or(c.Queue, 16)
	c.QueueBytes = cmp.Or(c.QueueBytes, 32<<20)
	c.Examples = cmp.Or(c.Examples, 3)
	c.Failures = cmp.Or(c.Failures, 10)
	return c
}
