package statusz

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Config configures the page of a program.
type Config struct {
	// Program and Version are the name of the program and its version, and Runtime has its plugins.
	Program, Version string
	Runtime          *host.Runtime
	// Collector observes the plugins and their log.
	Collector *Collector
	// Declared returns what the program knows of the declared plugins, in any order. The rest comes
	// from the Runtime, by the name.
	Declared func() []Plugin
	// Ready returns the reason that the program is not ready; nil is always ready.
	Ready func() error
	// ConfigErr returns the reason that the configuration file is not in service; nil always is.
	ConfigErr func() error
	// Alarm returns why no policy is in force, empty if they are; nil never does.
	Alarm func() string
	// Paths are the paths beside the page.
	Paths []string
	// Caches are the directories of caches, by their names.
	Caches map[string]string
	// Private reports whether a client may read what users and guests have written: refusals, traps
	// and differences. nil means all clients.
	Private func(*http.Request) bool
}

// The group and the versions of the kind Statusz: our own, and that of KEP-4827 without plugins.
const (
	kind       = "Statusz"
	group      = "kubewasm.dev"
	version    = "v1alpha1"
	kepGroup   = "config.k8s.io"
	kepVersion = "v1beta1"
)

// kep are the members of the kind Statusz of KEP-4827.
type kep struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	StartTime     time.Time `json:"startTime"`
	UptimeSeconds int64     `json:"uptimeSeconds"`
	GoVersion     string    `json:"goVersion"`
	BinaryVersion string    `json:"binaryVersion"`
	Paths         []string  `json:"paths"`
}

// Status is the state of a program.
type Status struct {
	kep
	// Replica is the name of the Pod or the machine.
	Replica string `json:"replica"`
	// Alarm is why no policy is in force: somebody broke the glass.
	Alarm string `json:"alarm,omitempty"`
	// ConfigError is the reason that the configuration file is not in service.
	ConfigError string `json:"configError,omitempty"`
	// NotReady is the reason that the program is not ready.
	NotReady string `json:"notReady,omitempty"`
	// Engine runs the guests. EngineReason is why it is not the compiler.
	Engine       host.Engine `json:"engine"`
	EngineReason string      `json:"engineReason,omitempty"`
	Memory       Memory      `json:"memory"`
	Caches       []Cache     `json:"caches,omitempty"`
	// Plugins are the plugins, those not in service first. Omitted is the number of those left out.
	Plugins []Plugin `json:"plugins"`
	Omitted int      `json:"omittedPlugins,omitempty"`
	// FailingOpen are the plugins without which requests pass, or whose answers do not count.
	FailingOpen []Open `json:"failingOpen"`
	// Refusals and Traps are the last ones, the latest first. Withheld is set if the client may not
	// read them.
	Refusals   []Event     `json:"refusals"`
	Traps      []Event     `json:"traps"`
	Withheld   bool        `json:"withheld,omitempty"`
	Recordings []Recording `json:"recordings,omitempty"`
}

// Memory is the memory of the process, in bytes, and its mappings.
type Memory struct {
	Resident  uint64 `json:"residentBytes,omitempty"`
	Guests    uint64 `json:"guestBytes"`
	Heap      uint64 `json:"heapBytes"`
	Mappings  int    `json:"mappings,omitempty"`
	Limit     int    `json:"mappingsLimit,omitempty"`
	Goroutine int    `json:"goroutines"`
}

// Cache is a directory of files.
type Cache struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Plugin is a plugin or a policy.
type Plugin struct {
	Name string `json:"name"`
	// Version is the author's, of the module in service.
	Version string     `json:"version,omitempty"`
	State   host.State `json:"state"`
	// Reason is why the declared module is not in service.
	Reason string `json:"reason,omitempty"`
	// Reference is the source of the declared module, and Digest the SHA-256 of that in service.
	Reference     string             `json:"reference,omitempty"`
	Digest        string             `json:"digest,omitempty"`
	Since         time.Time          `json:"since,omitzero"`
	Mode          host.Mode          `json:"mode,omitempty"`
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
	// Elsewhere reports whether the plugin is for other replicas.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Note names an override, a group, or warnings.
	Note string `json:"note,omitempty"`
	// BreakerOpen reports whether the circuit breaker has disabled the plugin.
	BreakerOpen   bool   `json:"circuitBreakerOpen,omitempty"`
	Instances     int    `json:"instances"`
	InstanceLimit int    `json:"instanceLimit"`
	Waiting       int    `json:"waitingCallers,omitempty"`
	Retired       int    `json:"retiredVersions,omitempty"`
	MemoryBytes   uint64 `json:"instanceBytes"`
	LogDropped    uint64 `json:"logLinesDropped,omitempty"`
	// Isolation is the level at which the guest runs, with the parts of the wall that the system lacks.
	Isolation string `json:"isolation,omitempty"`
	LastHour  Calls  `json:"lastHour"`
	// Shadow is the candidate, and Profile the functions with the most fuel.
	Shadow  *shadow.Status `json:"shadow,omitempty"`
	Profile []profile.Cost `json:"profile,omitempty"`
}

// Open is a plugin that does not keep requests from passing.
type Open struct {
	Plugin string `json:"plugin"`
	Why    string `json:"why"`
}

// Recording is a directory of recorded calls.
type Recording struct {
	Path     string `json:"path"`
	Recorded uint64 `json:"recorded"`
	Dropped  uint64 `json:"dropped"`
	Bytes    uint64 `json:"bytes"`
	Failures uint64 `json:"failures"`
	Error    string `json:"error,omitempty"`
}

const (
	// maxPlugins bounds the plugins of a page.
	maxPlugins = 500
	// maxFiles bounds the files of a cache that are looked at.
	maxFiles = 10_000
	// topFunctions are the functions of a profile, and maxGroups the differences of a shadow.
	topFunctions = 10
	maxGroups    = 10
)

var processStart = time.Now()

// status returns the state of the program.
func (c *Config) status(private bool) *Status {
	now := time.Now()
	s := &Status{Replica: cmp.Or(os.Getenv("POD_NAME"), os.Getenv("NODE_NAME"), hostname()), FailingOpen: []Open{}, Refusals: []Event{}, Traps: []Event{}, Withheld: !private}
	s.Kind, s.APIVersion, s.Metadata.Name = kind, group+"/"+version, c.Program
	s.StartTime, s.UptimeSeconds = processStart.UTC().Truncate(time.Second), int64(now.Sub(processStart).Seconds())
	s.GoVersion, s.BinaryVersion, s.Paths = runtime.Version(), c.Version, c.Paths
	if c.Alarm != nil {
		if s.Alarm = cut.Marked(c.Alarm(), textBytes); s.Alarm != "" {
			s.FailingOpen = append(s.FailingOpen, Open{"all", s.Alarm})
		}
	}
	if c.Ready != nil {
		s.NotReady = reason(c.Ready())
	}
	if c.ConfigErr != nil {
		s.ConfigError = reason(c.ConfigErr())
	}
	var why error
	s.Engine, why = c.Runtime.Engine()
	s.EngineReason = reason(why)
	s.Memory = memory(c.Runtime)
	for name, dir := range c.Caches {
		if dir != "" {
			s.Caches = append(s.Caches, sizeOf(name, dir))
		}
	}
	slices.SortFunc(s.Caches, func(a, b Cache) int { return cmp.Compare(a.Name, b.Name) })
	s.Plugins = c.plugins(now, private)
	for i := range s.Plugins {
		if why := s.Plugins[i].open(); why != "" {
			s.FailingOpen = append(s.FailingOpen, Open{s.Plugins[i].Name, why})
		}
	}
	if n := len(s.Plugins); n > maxPlugins {
		s.Plugins, s.Omitted = slices.Clone(s.Plugins[:maxPlugins]), n-maxPlugins
	}
	if private {
		s.Refusals, s.Traps = append(s.Refusals, c.Collector.refusals.last()...), append(s.Traps, c.Collector.traps.last()...)
	}
	for path, of := range c.Runtime.Recorders() {
		s.Recordings = append(s.Recordings, Recording{cut.Marked(path, textBytes), of.Recorded, of.Dropped, of.Bytes, of.Failures, reason(of.Err)})
	}
	slices.SortFunc(s.Recordings, func(a, b Recording) int { return cmp.Compare(a.Path, b.Path) })
	return s
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// reason returns the text of an error for a page.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return cut.Marked(publicerr.Redact(err.Error()), textBytes)
}

func memory(rt *host.Runtime) Memory {
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	m := Memory{Guests: rt.MemoryInUse(), Heap: heap.HeapInuse, Goroutine: runtime.NumGoroutine()}
	m.Mappings, m.Limit = rt.Mappings()
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident uint64
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			m.Resident = resident * uint64(os.Getpagesize())
		}
	}
	return m
}

// sizeOf returns the size of a directory.
func sizeOf(name, dir string) Cache {
	c := Cache{Name: name}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // Others remove files at any time.
		}
		if info, err := d.Info(); err == nil {
			c.Files, c.Bytes = c.Files+1, c.Bytes+info.Size()
		}
		if c.Files == maxFiles {
			return fs.SkipAll
		}
		return nil
	})
	return c
}

// plugins returns the declared plugins and those of the Runtime, those not in service first.
func (c *Config) plugins(now time.Time, private bool) []Plugin {
	var list []Plugin
	if c.Declared != nil {
		list = c.Declared()
	}
	loaded := map[string][]*host.Plugin{}
	for _, p := range c.Runtime.Plugins() {
		label := p.Stats().Label
		loaded[label] = append(loaded[label], p)
	}
	for i := range list {
		p := &list[i]
		if of := loaded[p.Name]; len(of) != 0 {
			p.fill(of[0])
			loaded[p.Name] = of[1:]
		}
	}
	for name, of := range loaded {
		for _, p := range of {
			more := Plugin{Name: name}
			if i := slices.IndexFunc(list, func(p Plugin) bool { return p.Name == name }); i >= 0 {
				more.Mode, more.FailurePolicy = list[i].Mode, list[i].FailurePolicy
			}
			more.fill(p)
			list = append(list, more)
		}
	}
	return c.bounded(list, now, private)
}

// bounded adds the calls, and cuts what others have written.
func (c *Config) bounded(list []Plugin, now time.Time, private bool) []Plugin {
	for i := range list {
		p := &list[i]
		if hours := c.Collector.plugins.Load(); hours != nil && (*hours)[p.Name] != nil {
			p.LastHour = (*hours)[p.Name].sum(now)
		}
		p.State = cmp.Or(p.State, host.Loading)
		for text, most := range map[*string]int{&p.Name: nameBytes, &p.Version: nameBytes, &p.Reason: textBytes, &p.Reference: textBytes, &p.Note: textBytes} {
			*text = cut.Marked(*text, most)
		}
		p.Profile = slices.Clone(p.Profile[:min(len(p.Profile), topFunctions)])
		for i := range p.Profile {
			p.Profile[i].Function = cut.Marked(p.Profile[i].Function, nameBytes)
		}
		if p.Shadow != nil {
			p.Shadow = boundedShadow(*p.Shadow, private)
		}
	}
	slices.SortStableFunc(list, func(a, b Plugin) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func boundedShadow(s shadow.Status, private bool) *shadow.Status {
	s.Reason, s.NotRepeated, s.Groups = cut.Marked(s.Reason, textBytes), nil, slices.Clone(s.Groups[:min(len(s.Groups), maxGroups)])
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Change, g.Examples = cut.Marked(g.Change, nameBytes), slices.Clone(g.Examples[:min(len(g.Examples), 3)])
		for i := range g.Examples {
			g.Examples[i] = cut.Marked(g.Examples[i], textBytes)
		}
		if !private {
			g.Examples = nil
		}
	}
	if !private {
		s.Reason, _, _ = strings.Cut(s.Reason, ", the last: ") // Text of the guest about a request.
	}
	return &s
}

// Reference returns the source of a declared module for a page.
func Reference(rt *host.Runtime, m host.ModuleConfig) string {
	source, err := rt.Source(m, "module")
	if err != nil {
		return ""
	}
	return publicerr.Redact(source.String())
}

// rank orders states: those that need attention first.
func rank(s host.State) int {
	return slices.Index([]host.State{host.Unavailable, host.Stale, host.Loading, host.Serving, host.Disabled}, s)
}

// fill adds the state of a plugin of the Runtime.
func (p *Plugin) fill(of *host.Plugin) {
	stats := of.Stats()
	state, err := of.State()
	if p.State == "" {
		p.State, p.Reason = state, reason(err)
	}
	p.Digest, p.Reference = cmp.Or(p.Digest, of.Digest()), cmp.Or(p.Reference, publicerr.Redact(of.Source().String()))
	if p.Version == "" {
		if m, err := metadata.Parse(of.Module().Custom(abi.MetadataSection)); err == nil {
			p.Version = m.Version
		}
	}
	if versions := of.Versions(); len(versions) != 0 && p.Since.IsZero() {
		p.Since = versions[len(versions)-1].LoadedAt
	}
	p.BreakerOpen, p.Instances, p.InstanceLimit, p.Waiting, p.Retired = stats.Disabled, stats.Instances, stats.Limit, stats.Waiting, stats.Retired
	p.MemoryBytes, p.LogDropped = stats.MemoryBytes, stats.LogDropped
	if stats.Isolation != host.IsolationNone || len(stats.Weaker) != 0 {
		p.Isolation = strings.Join(append([]string{string(stats.Isolation)}, stats.Weaker...), ": ")
	}
}

// Background adds the state of a plugin's shadow and of its profile, of which each may be nil.
func (p *Plugin) Background(s, of *shadow.Shadow) {
	if s != nil {
		status := s.Status()
		p.Shadow = &status
	}
	if of != nil && of.Profile() != nil {
		p.Profile = of.Profile().Top(topFunctions)
	}
}

// open returns why requests pass without the plugin, or whatever it answers.
func (p *Plugin) open() string {
	var why []string
	switch {
	case p.Elsewhere:
	case p.State == host.Disabled:
		why = append(why, "disabled: it is not called")
	case p.Mode == host.Monitor:
		why = append(why, "mode Monitor: its answers do not count")
	case p.FailurePolicy == host.Ignore && p.State == host.Unavailable:
		why = append(why, "Unavailable and failurePolicy Ignore: all requests pass")
	case p.FailurePolicy == host.Ignore && p.BreakerOpen:
		why = append(why, "circuit breaker open and failurePolicy Ignore: all requests pass")
	case p.FailurePolicy == host.Ignore:
		why = append(why, "failurePolicy Ignore: requests pass when it fails")
	case p.FailurePolicy == host.KeepLast:
		why = append(why, "failurePolicy KeepLast: the last decision stays when it fails")
	}
	return strings.Join(why, "; ")
}
