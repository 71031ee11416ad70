package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Config configures a plugin: its module and the permissions of the guest. An [Adapter] describes
// the offer of the component. The struct is also part of the configuration files of the adapters,
// in YAML or JSON. The program sets the fields without a name in those files.
type Config struct {
	// Name is the plugin's name in logs, errors and metrics, in UTF-8. Required.
	Name string `json:"name,omitempty"`
	// Scope tells plugins of one name in one process apart: the profile of a scheduler. With it,
	// metrics and traces know the plugin by [Stats].Label.
	Scope string `json:"-"`
	// Module names the module. Required.
	Module ModuleConfig `json:"module,omitzero"`
	// GuestConfig is the configuration of the guest, which it reads with kubewasm.config.
	GuestConfig GuestConfig `json:"guestConfig,omitempty"`
	// Args are the guest's arguments, the name first, as in os.Args. Empty means
	// "guest.wasm" alone, the same for every plugin, so that those with the same module can
	// begin from one state; guests of a [Dialect] find Name. They must not change while the
	// plugin is open. A program of a Dialect gets those of [DialectInstance.Run] instead.
	Args []string `json:"args,omitempty"`
	// Grants name the permissions of the guest beyond its arguments: [GrantClock], [GrantRandom],
	// and those that the imports of the [Adapter] require.
	Grants []string `json:"grants,omitempty"`
	// Limits bound the resources of the guest; the zero value is the default.
	Limits Limits `json:"limits,omitzero"`
	// Reset is the policy for resetting instances.
	Reset ResetPolicy `json:"reset,omitempty"`
	// Isolation is the level at which the guest is kept from the component.
	Isolation Isolation `json:"isolation,omitempty"`
	// CircuitBreaker disables a plugin that keeps failing.
	CircuitBreaker CircuitBreaker `json:"circuitBreaker,omitzero"`
	// Confidential names confidential data beside Secrets, tokens and the environment of
	// containers. Recordings, logs and everything else that outlives a call exclude such data.
	Confidential confidential.Rule `json:"confidential,omitzero"`
	// Record is the destination of recordings of the plugin's calls; nil records none.
	Record *record.Config `json:"record,omitempty"`
	// Observer receives calls, builds and resets; nil costs nothing.
	Observer Observer `json:"-"`
	// Logger receives the lines that the guest logs and prints, and one at the level info for
	// each module that begins to serve; nil drops them.
	Logger *slog.Logger `json:"-"`
	// Profiler collects the fuel of calls by function and call path, which makes them slower; nil
	// costs nothing.
	Profiler *Profiler `json:"-"`
}

// label returns the name of the plugin in its process.
func (c *Config) label() string {
	if c.Scope == "" {
		return c.Name
	}
	return c.Scope + "/" + c.Name
}

// GuestConfig is the configuration of a guest, JSON by convention. It may be empty, and must not
// change while the plugin is open.
//
// In a configuration file it is any value, passed to the guest as JSON. A string is passed without
// quotes.
type GuestConfig []byte

// MarshalJSON returns the configuration in the form of a configuration file.
func (c GuestConfig) MarshalJSON() ([]byte, error) {
	if len(c) == 0 {
		return []byte("null"), nil
	}
	if c[0] != '"' && json.Valid(c) {
		return c, nil
	}
	return json.Marshal(string(c))
}

// UnmarshalJSON reads the configuration in the form of a configuration file.
func (c *GuestConfig) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "null":
		return nil
	case data[0] == '"':
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = []byte(text)
	default:
		*c = bytes.Clone(data)
	}
	return nil
}

// The grants that adapters share. A guest may import the WASI functions for
// time and random numbers without them, and gets fakes: a clock that advances by
// a nanosecond with each instruction, the same random numbers in each instance.
const (
	// GrantClock gives a guest the real time.
	GrantClock = "clock"
	// GrantRandom gives a guest the random numbers of the operating system. The
	// numbers that a guest draws while it starts are in the snapshot, and so the
	// same for all instances.
	GrantRandom = "random"
	// GrantObjects lets a guest get and list the objects named in the configuration of its plugin,
	// which imply the grant. Adapters have the host functions.
	GrantObjects = "objects"
)

// validate returns every mistake of the configuration. known are the names of all
// grants.
func (c *Config) validate(known []string) (errs []error) {
	if !utf8.ValidString(c.Scope) {
		errs = append(errs, fmt.Errorf("scope %q is not UTF-8", c.Scope))
	}
	if c.Name == "" {
		errs = append(errs, errors.New("name is empty"))
	}
	if !utf8.ValidString(c.Name) {
		errs = append(errs, fmt.Errorf("name %q is not UTF-8", c.Name))
	}
	if err := c.Isolation.check("isolation"); err != nil {
		errs = append(errs, err)
	}
	if c.Profiler != nil && c.Isolation == IsolationProcess {
		errs = append(errs, errProfiled)
	}
	errs = append(errs, c.Module.Check("module")...)
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("args[%d] is %q, which has a NUL", i, arg))
		}
	}
	errs = append(errs, c.Limits.check("limits")...)
	for _, grant := range c.Grants {
		if !slices.Contains(known, grant) {
			errs = append(errs, fmt.Errorf("grant %q is unknown%s", grant, nearest.Hint("; ", grant, known)))
		}
	}
	if b := c.CircuitBreaker; b.After < 0 || b.Backoff < 0 || b.MaxBackoff < 0 {
		errs = append(errs, errors.New("circuitBreaker has a number below 0"))
	} else if b.After == 0 && b != (CircuitBreaker{}) {
		errs = append(errs, errors.New("circuitBreaker.after must be more than 0"))
	}
	if r := c.CircuitBreaker.Ratio; !(r >= 0 && r < 1) {
		errs = append(errs, fmt.Errorf("circuitBreaker.ratio is %g, want at least 0 and less than 1", r))
	}
	errs = append(errs, c.Confidential.Check()...)
	if c.Record != nil {
		errs = append(errs, c.Record.Check()...)
	}
	if err := c.Reset.check(); err != nil {
		errs = append(errs, err)
	}
	return errs
}
