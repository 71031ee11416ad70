package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// config is the configuration file.
type config struct {
	// CacheDir keeps compiled plugins, so that a restart takes milliseconds.
	CacheDir string `json:"cacheDir"`
	// CacheBytes bounds that directory. 0 means 1 GiB.
	CacheBytes int64 `json:"cacheBytes"`
	// Engine is compiler, which refuses to start if the node forbids executable memory, or
	// interpreter. Without it, plugins are compiled if possible.
	Engine host.Engine `json:"engine"`
	// MinimumIsolation is the level of plugins without one, none or process. A plugin with a lower one
	// is refused.
	MinimumIsolation host.Isolation `json:"minimumIsolation"`
	// DryRun logs writes instead of making them.
	DryRun bool `json:"dryRun"`
	// Follow reloads this file whenever its configuration changes. Default true. A plugin follows its
	// module if the module's configuration sets that.
	Follow *bool `json:"follow"`
	// LogLevel is the level of the log: debug, info, warn or error. Default is that of the flag.
	LogLevel *slog.Level `json:"logLevel"`
	// ReadyTimeout is the longest time for which plugins that could not be loaded keep the agent
	// from being ready. Default 10m.
	ReadyTimeout time.Duration `json:"readyTimeout"`
	// HostRoot is the path of the node's root file system, for mounts and devices granted to
	// plugins: /host in a container that mounts it there.
	HostRoot string `json:"hostRoot"`
	// Cgroup describes the cgroups.
	Cgroup struct {
		Root string `json:"root"`
		// Driver is the kubelet's driver: cgroupfs or systemd. By default it is detected from the
		// cgroups created by the kubelet.
		Driver string `json:"driver"`
		// KubeletRoot is the kubelet's cgroupRoot.
		KubeletRoot string `json:"kubeletRoot"`
		Scope       string `json:"scope"`
		// Weight is the runtime's conversion of the shares of containers: quadratic (runc 1.3.2,
		// crun 1.23 and later) or linear. By default it is detected from the values written by the
		// runtime.
		Weight string `json:"weight"`
		// KubeletWeight is the kubelet's conversion of the shares of pods and QoS classes: linear
		// (all releases up to 1.37) or quadratic. By default it is detected likewise.
		KubeletWeight string `json:"kubeletWeight"`
		Proc          string `json:"proc"`
		// Resctrl is the path of the kernel's resctrl file system.
		Resctrl string `json:"resctrl"`
	} `json:"cgroup"`
	// Standalone configures the standalone mode, which is off without it.
	Standalone *struct {
		Resync time.Duration `json:"resync"`
		// One of these lists the running pods.
		Kubelet *struct {
			URL       string `json:"url"`
			TokenFile string `json:"tokenFile"`
			CAFile    string `json:"caFile"`
			// ServerName is the name in the kubelet's certificate. Default is the variable
			// NODE_NAME or, without it, the host of URL.
			ServerName string `json:"serverName"`
		} `json:"kubelet"`
		CRI  string `json:"cri"`
		File string `json:"file"`
	} `json:"standalone"`
	// NRI answers containerd or CRI-O.
	NRI *struct {
		Socket string `json:"socket"`
		Index  string `json:"index"`
		// FailClosed fails requests that the agent does not answer while it is connected.
		FailClosed bool `json:"failClosed"`
	} `json:"nri"`
	// RuntimeHook answers Koordinator's runtime proxy.
	RuntimeHook *struct {
		Socket        string             `json:"socket"`
		Registration  string             `json:"registration"`
		FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	} `json:"runtimeHook"`
	// HTTP serves /metrics, /healthz, /readyz, /state and /statusz, without any authentication.
	HTTP *struct {
		Address string `json:"address"`
		// State opens /state and /statusz, with the names of pods, to processes in the node's network (Node, the
		// default), to all clients (Anyone), or to none (None).
		State string `json:"state"`
		// NativeHistogramsOnly leaves the classic buckets of histograms out of /metrics, for a
		// Prometheus that scrapes native histograms.
		NativeHistogramsOnly bool `json:"nativeHistogramsOnly"`
	} `json:"http"`
	// Management serves the routes with which an operator shadows, profiles and rolls back plugins;
	// nil serves none.
	Management *management.Config `json:"management"`
	// Events writes an Event, by the API server, on each Pod refused by a plugin.
	Events *apiserver.Config `json:"events"`
	// Node follows the node at the API server, for plugins that read it.
	Node *nodeConfig `json:"node"`
	// Cluster serves the NodeHooks of the API server, beside Plugins, and writes a PluginReport. With
	// a CacheDir they are known after a restart, too, while the API server does not answer.
	Cluster *apiserver.Config `json:"cluster"`
	// Registries configures how artifacts are fetched and which ones are trusted, for plugins with
	// oci.
	Registries oci.Config     `json:"registries"`
	Plugins    []pluginConfig `json:"plugins"`

	// hooks are the NodeHooks among Plugins, nil without Cluster.
	hooks *nodeHooks

	// standIn is set at the start of the process, when a plugin that cannot be loaded must not keep
	// the others from the node. Later, the agent before goes on.
	standIn bool
	// status keeps the calls of the process, whatever its configuration is.
	status *statusz.Collector
	// secrets are the texts of Secrets in configurations of NodeHooks, nil for none.
	secrets *clusterplugins.Secrets
}

// nodeConfig configures the node to follow.
type nodeConfig struct {
	// Name is the name of the Node. Default is the variable NODE_NAME.
	Name string `json:"name"`
	// Sys is the path of the kernel's sysfs, from which the node's topology is read. Default /sys.
	Sys              string `json:"sys"`
	apiserver.Config `json:",inline"`
}

// pluginConfig is a plugin of the file.
type pluginConfig struct {
	hooks.PluginConfig `json:",inline"`
	// NodeSelector is a selector on the labels of the node. The plugin is not loaded on other
	// nodes.
	NodeSelector string `json:"nodeSelector"`

	// object is the NodeHook that declares the plugin, nil for one of the file. If it is for the nodes
	// that a step of a rollout selects, others is set in the version for the other nodes.
	object    *clusterplugins.Object
	selectors []string
	others    bool
}

// someNodes reports whether the plugin is only for some nodes.
func (p *pluginConfig) someNodes() bool { return p.NodeSelector != "" || len(p.selectors) != 0 }

// selects reports whether the plugin is for a node with some labels. The selectors have been checked.
func (p *pluginConfig) selects(of map[string]string) bool {
	matches := func(selector string) bool {
		s, err := labels.Parse(selector)
		return err == nil && s.Matches(labels.Set(of))
	}
	return matches(p.NodeSelector) && (len(p.selectors) == 0 || slices.ContainsFunc(p.selectors, matches) != p.others)
}

func readConfig(file string) (*config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseConfig(file, b)
}

// parseConfig reads the text of a file.
func parseConfig(file string, text []byte) (*config, error) {
	cfg := new(config)
	if err := configfile.YAML(text, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cfg, nil
}

// selectsNodes reports whether a plugin is only for some nodes.
func (c *config) selectsNodes() bool {
	return slices.ContainsFunc(c.Plugins, func(p pluginConfig) bool { return p.someNodes() })
}

// checkNodes returns the mistakes in the selectors of nodes.
func (c *config) checkNodes() error {
	var errs []error
	for i := range c.Plugins {
		p := &c.Plugins[i]
		if _, err := labels.Parse(p.NodeSelector); err != nil {
			errs = append(errs, fmt.Errorf("plugin %q: nodeSelector: %w", p.Name, err))
		}
		if len(p.Objects) != 0 && c.Node == nil {
			errs = append(errs, fmt.Errorf("plugin %q: objects: the configuration does not follow the node", p.Name))
		}
		if p.NodeSelector != "" && c.Node == nil {
			errs = append(errs, fmt.Errorf("plugin %q: nodeSelector: the configuration does not follow the node", p.Name))
		}
	}
	return errors.Join(errs...)
}

// forNode returns the plugins for a node with some labels, by their places in Plugins.
func (c *config) forNode(of map[string]string) (places []int) {
	for i := range c.Plugins {
		if c.Plugins[i].selects(of) {
			places = append(places, i)
		}
	}
	return places
}

// plugins returns the plugins with the defaults of the agent.
func (c *config) plugins() []hooks.PluginConfig {
	var plugins []hooks.PluginConfig
	for i := range c.Plugins {
		p := c.Plugins[i].PluginConfig
		if p.CircuitBreaker == (host.CircuitBreaker{}) {
			// A plugin that keeps failing must not cost each container its timeout.
			p.CircuitBreaker = host.CircuitBreaker{After: 10, MaxBackoff: time.Minute}
		}
		plugins = append(plugins, p)
	}
	return plugins
}

// parse finds a value by its name; an empty name is the zero value.
func parse[E fmt.Stringer](what, name string, values ...E) (zero E, err error) {
	var names []string
	for _, v := range values {
		if v.String() == name {
			return v, nil
		}
		names = append(names, v.String())
	}
	if name == "" {
		return zero, nil
	}
	return zero, fmt.Errorf("%s %q is none of %s", what, name, strings.Join(names, ", "))
}
