package main

import (
	"cmp"
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

	"github.com/kubewasm/kubewasm/codec/hookmsg"
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
	// file keeps the objects over restarts, and labelsFile the labels of the node; empty for none.
	file, labelsFile string
	// trials are those of versions of which a rollout has a step for this node.
	trials clusterplugins.Trials
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
		h.file, h.labelsFile = filepath.Join(cfg.CacheDir, "nodehooks.json"), filepath.Join(cfg.CacheDir, "nodelabels.json")
	}
	process := clusterplugins.ThisProcess("kubewasm-agent", program.ThisBuild().Short(), "")
	process.Secrets = cfg.secrets
	h.watch = clusterplugins.New(clusterplugins.Config{Client: client, Secrets: cfg.secrets, Name: cmp.Or(process.Node, process.Name), Resources: []clusterplugins.Resource{clusterplugins.NodeHooks}, Apply: h.apply, Logger: logger})
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
	same := slices.EqualFunc(h.objects, objects, serves)
	h.objects = objects
	h.trials.Apply(objects)
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
func (h *nodeHooks) keep(objects []clusterplugins.Object) { h.write(h.file, objects) }

// write writes a value to a file of the cache.
func (h *nodeHooks) write(file string, value any) {
	if file == "" {
		return
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		h.logger.Warn("the NodeHooks are not kept for a restart without the API server", slog.Any("err", err))
	}
}

// labels keeps the labels of the node. With the error of reading them, it returns the kept ones, or the
// error if there are none.
func (h *nodeHooks) labels(of map[string]string, err error) (map[string]string, error) {
	if err == nil {
		h.write(h.labelsFile, of)
		return of, nil
	}
	if h.labelsFile == "" {
		return nil, err
	}
	text, readErr := os.ReadFile(h.labelsFile)
	if readErr == nil {
		readErr = json.Unmarshal(text, &of)
	}
	if readErr != nil {
		return nil, err
	}
	h.logger.Warn("the API server does not send the node; the agent selects plugins by the labels that it has kept", slog.Any("err", err))
	return of, nil
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
		h.trials.Apply(objects)
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
		if newest := of[name]; !ok || before.UID != newest.UID || before.Serves(&newest) {
			return false
		}
		of[name] = before
		return true
	}
	try := func(standIn bool) (*agent, error) {
		whole := *cfg
		whole.Plugins, whole.hooks, whole.standIn = slices.Clone(cfg.Plugins), h, cfg.standIn || standIn
		for _, name := range slices.Sorted(maps.Keys(of)) {
			versions, err := hooksOf(of[name], &whole)
			if err != nil && back(name, err) {
				versions, err = hooksOf(of[name], &whole)
			}
			if err != nil {
				failed[name] = err
				delete(of, name)
				continue
			}
			whole.Plugins = append(whole.Plugins, versions...)
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
	if again && len(h.refused) != 0 && slices.EqualFunc(objects, h.built, serves) && sameKeys(failed, h.refused) {
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

func serves(a, b clusterplugins.Object) bool { return a.Serves(&b) }

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

// hooksOf returns the plugins of an object, beside those of a configuration: none if it has no version
// for this node, and two if the labels of the node decide.
func hooksOf(object clusterplugins.Object, cfg *config) (versions []pluginConfig, err error) {
	with := func(o *clusterplugins.Object, others bool) {
		if o.Held {
			return
		}
		p, wrong := hookOf(o, cfg)
		if wrong != nil {
			err = errors.Join(err, wrong)
			return
		}
		p.selectors, p.others = object.NodeSelectors, others
		versions = append(versions, *p)
	}
	if object.Else != nil {
		with(object.Else, true)
	}
	if object.Else != nil && cfg.Node == nil {
		for i := range versions {
			versions[i].selectors = nil // The labels are unknown.
		}
		return versions, err
	}
	with(&object, false)
	return versions, err
}

// hookOf returns the plugin of an object, beside those of a configuration.
func hookOf(object *clusterplugins.Object, cfg *config) (*pluginConfig, error) {
	p := &pluginConfig{object: object}
	if object.Spec == nil {
		return nil, clusterplugins.ErrTooLarge
	}
	spec, unread := object.Settings()
	if err := errors.Join(unread, configfile.JSON(spec, p)); err != nil {
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
		if !cfg.Plugins[i].someNodes() {
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
		if object.Held {
			continue // It is for other nodes, or not for this one yet.
		}
		err := refused[object.Name]
		_, ok := good[object.Name]
		serving := a.object(object.Name)
		if serving != nil && object.Else != nil && object.Else.Serves(serving) {
			object = object.Else
		}
		s := clusterplugins.State{Kind: object.Kind, Name: object.Name, UID: object.UID, Generation: object.Generation, State: string(host.Loading)}
		if guest := a.engine.Guest(object.Name); guest != nil && ok && serving != nil {
			state, reason := guest.State()
			if s.State = string(state); reason != nil {
				s.Message = publicerr.Redact(reason.Error())
			}
			s.Digest, s.Reference = guest.Digest(), publicerr.Redact(guest.Stats().Reference)
			s.Revision = serving.Revision
			if serving.Generation != object.Generation || serving.Revision != object.Revision {
				s.State = string(host.Stale)
			}
			trial := h.trials.Of(serving)
			if shadow := a.engine.Shadow(object.Name); shadow != nil && serving.Shadow {
				trial.Compared(shadow.Status())
			}
			trial.Report(&s)
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

// object returns the object whose version serves under a name, nil if there is none on this node.
func (a *agent) object(name string) *clusterplugins.Object {
	for i := range a.plugins {
		if o := a.plugins[i].object; o != nil && o.Name == name {
			return o
		}
	}
	return nil
}

// trialsOf returns an observer of the failures of plugins that are on trial, and adds one of their slow
// calls to the configurations of the plugins, which have the same order.
func (h *nodeHooks) trialsOf(plugins []pluginConfig, of []hooks.PluginConfig) trials {
	all := trials{}
	for i := range plugins {
		if o := plugins[i].object; o != nil {
			if trial := h.trials.Of(o); trial != nil {
				all[plugins[i].Name] = trial
				of[i].Observer = host.Observers(of[i].Observer, trial.Observer())
			}
		}
	}
	return all
}

// trials count the failures of plugins on trial, by their names.
type trials map[string]*clusterplugins.Trial

// Decided implements [hooks.Observer].
func (trials) Decided(context.Context, *hookmsg.Request, time.Duration, *hookmsg.Decision, error) {}

// Failed counts a failure that is the plugin's.
func (t trials) Failed(_ context.Context, _ *hookmsg.Request, plugin string, _ host.FailurePolicy, _ bool, err error) {
	switch hooks.CauseOf(err) {
	case "closed", "node", "unavailable":
		return // The module is not to blame; the progress deadline is about the last.
	}
	t[plugin].Called(err, 0)
}

// Monitored implements [hooks.Observer].
func (trials) Monitored(context.Context, *hookmsg.Request, string, *hookmsg.Decision) {}
