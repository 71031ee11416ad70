package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/strict"
)

// config is the configuration file.
type config struct {
	// CacheDir keeps compiled plugins, so that a restart takes milliseconds.
	CacheDir string `json:"cacheDir"`
	// CacheBytes bounds that directory. 0 means 1 GiB.
	CacheBytes int64 `json:"cacheBytes"`
	// Engine is compiler, to refuse a start where the node forbids executable memory, or
	// interpreter. Without it, plugins are compiled where that is possible.
	Engine host.Engine `json:"engine"`
	// DryRun logs what would be written, and writes nothing.
	DryRun bool `json:"dryRun"`
	// Follow swaps a plugin in whenever its file holds another, and takes this file anew whenever it
	// holds another configuration.
	Follow bool `json:"follow"`
	// HostRoot is where the root of the node's file system is, for mounts and devices
	// that plugins are granted: /host in a container that has it there.
	HostRoot string `json:"hostRoot"`
	// Cgroup says where the cgroups are.
	Cgroup struct {
		Root string `json:"root"`
		// Driver is the kubelet's: cgroupfs or systemd. Without it, it is found by the cgroups
		// that the kubelet has made.
		Driver string `json:"driver"`
		// KubeletRoot is the kubelet's cgroupRoot.
		KubeletRoot string `json:"kubeletRoot"`
		Scope       string `json:"scope"`
		// Weight is how the runtime converts the shares of containers: quadratic (runc 1.3.2, crun
		// 1.23 and later) or linear. Without it, it is found by what the runtime has written.
		Weight string `json:"weight"`
		// KubeletWeight is how the kubelet converts those of pods and QoS classes: linear (all
		// releases up to 1.37) or quadratic. Without it, it is found likewise.
		KubeletWeight string `json:"kubeletWeight"`
		Proc          string `json:"proc"`
		// Resctrl is where the kernel's resctrl file system is.
		Resctrl string `json:"resctrl"`
	} `json:"cgroup"`
	// Standalone reconciles; without it, nothing does.
	Standalone *struct {
		Resync metav1.Duration `json:"resync"`
		// One of these says what runs.
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
		// FailClosed fails what the agent does not answer while it is connected.
		FailClosed bool `json:"failClosed"`
	} `json:"nri"`
	// RuntimeHook answers Koordinator's runtime proxy.
	RuntimeHook *struct {
		Socket        string             `json:"socket"`
		Registration  string             `json:"registration"`
		FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	} `json:"runtimeHook"`
	// HTTP serves /metrics, /healthz, /readyz and /state, without any authentication.
	HTTP *struct {
		Address string `json:"address"`
		// State opens /state, with the names of pods, to processes in the node's network
		// (Node, the default), to all clients (Anyone), or to nobody (None).
		State string `json:"state"`
	} `json:"http"`
	// Events has an Event written on each Pod that a plugin refuses, by the API server.
	Events *apiserver.Config `json:"events"`
	// Node has the node followed at the API server, for plugins that read it.
	Node *nodeConfig `json:"node"`
	// Registries says how artifacts are fetched and which are trusted, for plugins with oci.
	Registries oci.Config     `json:"registries"`
	Plugins    []pluginConfig `json:"plugins"`
}

// nodeConfig says which node is followed, and where.
type nodeConfig struct {
	// Name is that of the Node. Default is the variable NODE_NAME.
	Name string `json:"name"`
	// Sys is where the kernel's sysfs is, of which the node's topology is read. Default /sys.
	Sys              string `json:"sys"`
	apiserver.Config `json:",inline"`
}

// pluginConfig is hooks.PluginConfig in the words of the file.
type pluginConfig struct {
	host.Config    `json:",inline"`
	File           string       `json:"file"`
	OCI            string       `json:"oci"`
	Order          int          `json:"order"`
	Stages         []string     `json:"stages"`
	Levels         []string     `json:"levels"`
	Owns           []string     `json:"owns"`
	DecisionGrants hooks.Grants `json:"decisionGrants"`
	// Objects are those of the node's name that the plugin may look up.
	Objects       []hooks.ObjectGrant `json:"objects"`
	Reads         []string            `json:"reads"`
	FailurePolicy host.FailurePolicy  `json:"failurePolicy"`
	DryRun        bool                `json:"dryRun"`
	Selector      struct {
		Namespaces []string `json:"namespaces"`
		QOSClasses []string `json:"qosClasses"`
		Labels     string   `json:"labels"`
		// NodeLabels is a selector on the labels of the node: on others the plugin is not loaded.
		NodeLabels string `json:"nodeLabels"`
	} `json:"selector"`
	// Shadow has a candidate asked in the background, whose decisions have no effect.
	Shadow *shadow.Config `json:"shadow"`
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
	if err := strict.YAML(text, cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cfg, nil
}

// selectsNodes reports whether a plugin is for some nodes alone.
func (c *config) selectsNodes() bool {
	return slices.ContainsFunc(c.Plugins, func(p pluginConfig) bool { return p.Selector.NodeLabels != "" })
}

// checkNodes returns what is wrong with the selectors of nodes.
func (c *config) checkNodes() error {
	var errs []error
	for i := range c.Plugins {
		p := &c.Plugins[i]
		if _, err := labels.Parse(p.Selector.NodeLabels); err != nil {
			errs = append(errs, fmt.Errorf("plugin %q: selector: nodeLabels: %w", p.Name, err))
		}
		if p.Selector.NodeLabels != "" && c.Node == nil {
			errs = append(errs, fmt.Errorf("plugin %q: selector: nodeLabels: the configuration does not have the node followed", p.Name))
		}
	}
	return errors.Join(errs...)
}

// forNode returns the plugins for a node with some labels, by their places in Plugins. The selectors
// have been checked.
func (c *config) forNode(of map[string]string) (places []int) {
	for i := range c.Plugins {
		if s, err := labels.Parse(c.Plugins[i].Selector.NodeLabels); err == nil && s.Matches(labels.Set(of)) {
			places = append(places, i)
		}
	}
	return places
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

// known lists the values of an enum from the first on.
func known[E interface {
	~int32
	Known() bool
}](first E) (values []E) {
	for v := first; v.Known(); v++ {
		values = append(values, v)
	}
	return values
}

// plugins converts the plugins, with their artifacts from a client, and reports every mistake.
func (c *config) plugins(artifacts *oci.Client) ([]hooks.PluginConfig, error) {
	var plugins []hooks.PluginConfig
	var errs []error
	for i := range c.Plugins {
		p := &c.Plugins[i]
		fail := func(err error) {
			if err != nil {
				errs = append(errs, fmt.Errorf("plugin %q: %w", p.Name, err))
			}
		}
		plugin := hooks.PluginConfig{
			Config: p.Config,
			Order:  p.Order, Owns: p.Owns, DecisionGrants: p.DecisionGrants, Objects: p.Objects, Reads: p.Reads, DryRun: p.DryRun,
			FailurePolicy: p.FailurePolicy,
			Selector:      hooks.Selector{Namespaces: p.Selector.Namespaces, Labels: p.Selector.Labels},
			Shadow:        p.Shadow,
		}
		if artifacts != nil {
			plugin.OpenOCI = artifacts.Source
		}
		if len(p.Objects) != 0 && c.Node == nil {
			fail(errors.New("objects: the configuration does not have the node followed"))
		}
		switch {
		case p.File != "" && p.OCI != "":
			fail(errors.New("file and oci exclude one another"))
		case p.OCI != "" && artifacts != nil:
			plugin.Source = artifacts.Source(p.OCI)
			fail(plugin.Source.(host.Checker).Check(p.SHA256))
		case p.OCI != "":
			// The client has mistakes of its own.
			_, err := oci.ParseReference(p.OCI)
			fail(err)
		default:
			plugin.Source = host.File(p.File)
		}
		if plugin.CircuitBreaker == (host.CircuitBreaker{}) {
			// One that keeps failing must not cost each container its timeout.
			plugin.CircuitBreaker = host.CircuitBreaker{After: 10, MaxBackoff: time.Minute}
		}
		fail(p.FailurePolicy.Check(host.KeepLast))
		for _, name := range p.Stages {
			stage, err := parse("stage", name, known(hookmsg.PreRunPodSandbox)...)
			fail(err)
			plugin.Stages = append(plugin.Stages, stage)
		}
		for _, name := range p.Levels {
			level, err := parse("level", name, known(hookmsg.LevelQOS)...)
			fail(err)
			plugin.Levels = append(plugin.Levels, level)
		}
		for _, name := range p.Selector.QOSClasses {
			class, err := parse("QoS class", name, hookmsg.QOSGuaranteed, hookmsg.QOSBurstable, hookmsg.QOSBestEffort)
			fail(err)
			plugin.Selector.QOSClasses = append(plugin.Selector.QOSClasses, class)
		}
		plugins = append(plugins, plugin)
	}
	return plugins, errors.Join(errs...)
}
