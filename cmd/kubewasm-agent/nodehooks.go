package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// hooksWait is the longest time for which a start waits for the API server, before it goes on with
// the NodeHooks that it has kept.
const hooksWait = 5 * time.Second

// nodeHooks are the NodeHooks of the cluster. They outlive agents.
type nodeHooks struct {
	cfg    apiserver.Config
	client *apiserver.Client
	watch  *clusterplugins.Watch
	logger *slog.Logger
	// file keeps the objects over restarts, empty for none.
	file string
	// changed signals other objects.
	changed chan struct{}
	// known is closed once the API server has sent the objects.
	known chan struct{}
	// agent is the one that serves.
	agent atomic.Pointer[agent]

	mu      sync.Mutex
	objects []clusterplugins.Object
	told    bool // Whether known is closed.
	// built are the objects of the last agent.
	built []clusterplugins.Object
	// good are the objects that were loaded last, by name.
	good map[string]clusterplugins.Object
	// refused are the reasons that the newest objects do not serve, by name.
	refused map[string]error
}

// followHooks follows the NodeHooks, and reports on them, until stop is called.
func followHooks(ctx context.Context, cfg *config, logger *slog.Logger) (h *nodeHooks, stop func(), err error) {
	client, err := apiserver.New(*cfg.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: %w", err)
	}
	h = &nodeHooks{
		cfg: *cfg.Cluster, client: client, logger: logger, changed: make(chan struct{}, 1), known: make(chan struct{}), good: map[string]clusterplugins.Object{}, refused: map[string]error{},
	}
	if cfg.CacheDir != "" {
		h.file = filepath.Join(cfg.CacheDir, "nodehooks.json")
	}
	h.watch = clusterplugins.New(clusterplugins.Config{Client: client, Resources: []clusterplugins.Resource{clusterplugins.NodeHooks}, Apply: h.apply, Logger: logger})
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { h.watch.Run(ctx) })
	timer := time.NewTimer(hooksWait)
	defer timer.Stop()
	select {
	case <-h.known:
	case <-ctx.Done():
	case <-timer.C:
		h.restore()
		logger.Error("the API server does not send the NodeHooks; the agent goes on with those that it has kept", slog.Any("err", h.watch.Err()))
	}
	process := clusterplugins.ThisProcess("kubewasm-agent", program.ThisBuild().Short(), "")
	all.Go(func() {
		clusterplugins.Report(ctx, client, process, h.states, logger)
	})
	return h, func() {
		cancel()
		all.Wait()
	}, nil
}

// apply receives the objects of the API server.
func (h *nodeHooks) apply(objects []clusterplugins.Object) {
	h.mu.Lock()
	same := slices.EqualFunc(h.objects, objects, sameObject)
	h.objects = objects
	if !h.told {
		h.told = true
		close(h.known)
	}
	h.mu.Unlock()
	h.keep(objects)
	if !same {
		h.signal()
	}
}

func (h *nodeHooks) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// keep writes the objects to the file.
func (h *nodeHooks) keep(objects []clusterplugins.Object) {
	if h.file == "" {
		return
	}
	text, err := json.Marshal(objects)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(h.file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(h.file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(h.file+".new", h.file)
	}
	if err != nil {
		h.logger.Warn("the NodeHooks are not kept for a restart without the API server", slog.Any("err", err))
	}
}

// restore reads the objects of the file.
func (h *nodeHooks) restore() {
	if h.file == "" {
		return
	}
	text, err := os.ReadFile(h.file)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var objects []clusterplugins.Object
	if err == nil {
		err = json.Unmarshal(text, &objects)
	}
	if err != nil {
		h.logger.Error("the NodeHooks of before the restart are lost", slog.Any("err", err))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.told {
		h.objects = objects
	}
}

// build creates an agent with the plugins of a configuration and those of the newest objects. An
// object that cannot be loaded is replaced by the version before, if there is one, so that it
// keeps no other from the node.
//
// If again is set, and nothing else can be loaded than before, the error is errStillStale.
func (h *nodeHooks) build(ctx context.Context, cfg *config, again bool, logger *slog.Logger) (*agent, error) {
	h.mu.Lock()
	objects, good := h.objects, h.good
	h.mu.Unlock()
	// of are the objects to load, by name, and failed the reasons that the newest are not.
	of, failed := map[string]clusterplugins.Object{}, map[string]error{}
	for i := range objects {
		of[objects[i].Name] = objects[i]
	}
	// back puts the version before into the place of an object, and reports false if there is none.
	back := func(name string, err error) bool {
		if failed[name] == nil {
			failed[name] = err
		}
		before, ok := good[name]
		if newest := of[name]; !ok || before.UID != newest.UID || before.Generation == newest.Generation && before.Pinned == newest.Pinned {
			return false
		}
		of[name] = before
		return true
	}
	try := func(standIn bool) (*agent, error) {
		whole := *cfg
		whole.Plugins, whole.hooks, whole.standIn = slices.Clone(cfg.Plugins), h, cfg.standIn || standIn
		for _, name := range slices.Sorted(maps.Keys(of)) {
			object := of[name]
			p, err := hookOf(&object, &whole)
			if err != nil && back(name, err) {
				object = of[name]
				p, err = hookOf(&object, &whole)
			}
			if err != nil {
				failed[name] = err
				delete(of, name)
				continue
			}
			whole.Plugins = append(whole.Plugins, *p)
		}
		return newAgent(ctx, &whole, logger)
	}
	a, err := try(false)
	if err != nil && len(of) != 0 {
		first := err
		for _, one := range flat(err) {
			for name := range maps.Clone(of) {
				switch {
				case !strings.Contains(one.Error(), fmt.Sprintf("plugin %q", name)) || back(name, one):
				case errors.As(one, new(*host.LoadError)):
					delete(failed, name) // It is loaded when its module can be, and is unavailable until then.
				default:
					delete(of, name)
				}
			}
		}
		if a, err = try(true); err != nil {
			// Whichever it is, those that served before serve on.
			for name := range maps.Clone(of) {
				if !back(name, fmt.Errorf("the agent cannot be built with it: %w", first)) && good[name].UID != of[name].UID {
					delete(of, name)
				}
			}
			a, err = try(true)
		}
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if again && len(h.refused) != 0 && slices.EqualFunc(objects, h.built, sameObject) && sameKeys(failed, h.refused) {
		a.close()
		return nil, errStillStale
	}
	h.good, h.built, h.refused = of, objects, map[string]error{}
	for name, err := range failed {
		h.refused[name] = err
		logger.Error("a NodeHook is refused", slog.String("plugin", name), slog.Any("err", err))
	}
	return a, nil
}

// errStillStale is the error of another attempt to load what could not be loaded, and cannot be now.
var errStillStale = errors.New("the same NodeHooks cannot be loaded")

func sameObject(a, b clusterplugins.Object) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.Pinned == b.Pinned && (a.Spec == nil) == (b.Spec == nil)
}

func sameKeys(a, b map[string]error) bool {
	return maps.EqualFunc(a, b, func(error, error) bool { return true })
}

// flat returns the errors of a joined one.
func flat(err error) []error {
	switch joined := err.(type) { //nolint:errorlint // It looks into the tree.
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		var all []error
		for _, err := range joined.Unwrap() {
			all = append(all, flat(err)...)
		}
		return all
	}
	return []error{err}
}

// hookOf returns the plugin of an object, beside those of a configuration.
func hookOf(object *clusterplugins.Object, cfg *config) (*pluginConfig, error) {
	p := &pluginConfig{object: object}
	if object.Spec == nil {
		return nil, clusterplugins.ErrTooLarge
	}
	if err := configfile.JSON(object.Spec, p); err != nil {
		return nil, err
	}
	var errs []error
	fail := func(wrong bool, err error) {
		if wrong {
			errs = append(errs, err)
		}
	}
	fail(p.Name != "", errors.New("name is that of the object"))
	fail(p.Record != nil, errors.New("record is for the agent's file, not for objects: its path is one of the node"))
	p.Name = object.Name
	if object.Pinned != "" && p.Module.OCI != "" {
		p.Module.OCI, p.Module.Follow = object.Pinned, false
	}
	fail(slices.ContainsFunc(cfg.Plugins, func(other pluginConfig) bool { return other.Name == p.Name }), errors.New("the agent's file has a plugin of this name, which takes precedence"))
	errs = append(errs, p.Module.Check("module")...)
	_, err := labels.Parse(p.NodeSelector)
	fail(err != nil, fmt.Errorf("nodeSelector: %w", err))
	fail(p.NodeSelector != "" && cfg.Node == nil, errors.New("nodeSelector: the agent's configuration does not follow the node"))
	fail(len(p.Objects) != 0 && cfg.Node == nil, errors.New("objects: the agent's configuration does not follow the node"))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	// Beside the plugins of all nodes, which it must not contradict.
	var beside []hooks.PluginConfig
	for i := range cfg.Plugins {
		if cfg.Plugins[i].NodeSelector == "" {
			beside = append(beside, cfg.Plugins[i].PluginConfig)
		}
	}
	beside = append(beside, p.PluginConfig)
	all := hooks.Config{Plugins: beside, HostRoot: cfg.HostRoot, Node: cfg.Node != nil}
	for i := range all.Plugins {
		all.Plugins[i].Shadow = nil // Its module needs the runtime, and is checked with it.
	}
	if err := all.Check(nil); err != nil {
		return nil, err
	}
	return p, nil
}

// stale reports whether the module of an object could not be loaded, which another attempt may end.
func (h *nodeHooks) stale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, err := range h.refused {
		if errors.As(err, new(*host.LoadError)) {
			return true
		}
	}
	return false
}

// states returns the states of the NodeHooks that are for this node.
func (h *nodeHooks) states() (states []clusterplugins.State) {
	h.mu.Lock()
	objects, good, refused := h.objects, h.good, h.refused
	h.mu.Unlock()
	a := h.agent.Load()
	if a == nil || objects == nil {
		return nil
	}
	states = []clusterplugins.State{}
	for i := range objects {
		object := &objects[i]
		s := clusterplugins.State{Kind: object.Kind, Name: object.Name, UID: object.UID, Generation: object.Generation, State: string(host.Loading)}
		err := refused[object.Name]
		serving, ok := good[object.Name]
		if guest := a.engine.Guest(object.Name); guest != nil && ok {
			state, reason := guest.State()
			if s.State = string(state); reason != nil {
				s.Message = publicerr.Redact(reason.Error())
			}
			s.Digest, s.Reference = guest.Digest(), publicerr.Redact(guest.Stats().Reference)
			if serving.Generation != object.Generation {
				s.State = string(host.Stale)
			}
		} else if err == nil && ok {
			continue // It is for other nodes.
		}
		switch {
		case err == nil:
		case s.Digest == "":
			s.State, s.Message = clusterplugins.Refused, publicerr.Redact(err.Error())
		default:
			s.State, s.Message = string(host.Stale), publicerr.Redact(err.Error())
		}
		states = append(states, s)
	}
	return states
}
