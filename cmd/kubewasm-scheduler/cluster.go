package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137" // Of the minor that the module file pins.
)

const (
	// clusterWait is the longest time for which a start waits for the SchedulerPlugins.
	clusterWait = 15 * time.Second
	// A plugin that cannot be loaded is tried again after leastRetry, and then after twice the time,
	// at most mostRetry.
	leastRetry, mostRetry = 2 * time.Second, 5 * time.Minute
)

// clusterArgs are the arguments of a plugin of a profile that a SchedulerPlugin of the cluster
// declares.
type clusterArgs struct {
	// Cluster is true.
	Cluster bool `json:"cluster"`
	// FailurePolicy decides about Pods while there is no such object: with Fail, the default, they
	// wait.
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
}

// clusterPlugins are the plugins of profiles that objects of the cluster declare. They exist while
// the program runs.
type clusterPlugins struct {
	options  *options
	runtime  *host.Runtime
	logger   *slog.Logger
	observer host.Observer

	// failure is the reason that there is no connection.
	failure error
	watch   *clusterplugins.Watch
	client  *apiserver.Client
	process clusterplugins.Process
	// known is closed once the objects are, and changed signals others.
	known   chan struct{}
	changed chan struct{}

	mu      sync.Mutex
	told    bool // Whether known is closed.
	objects []clusterplugins.Object
	// labels are those of the Pod of the process.
	labels labels.Set
	places []*place
}

// place is a plugin of a profile.
type place struct {
	profile, name string
	policy        host.FailurePolicy
	plugin        kube.Replaceable
	// tried is the object that was tried last, nil for none, and err its error, which is tried again at
	// a time. serving is the object that serves, nil for none, with its configuration.
	tried, serving *clusterplugins.Object
	begun          bool
	err            error
	at             time.Time
	wait           time.Duration
	cfg            sched.PluginConfig
}

// followCluster follows the plugins of a configuration that the cluster declares, and reports on them,
// until ctx ends. It returns nil if there are none. Without a connection, plugins of the cluster cannot
// be made.
func followCluster(ctx context.Context, o *options, rt *host.Runtime, observer host.Observer, secrets *clusterplugins.Secrets, logger *slog.Logger) *clusterPlugins {
	if !o.cluster && !slices.ContainsFunc(o.plugins, func(p configuredPlugin) bool { return p.cluster }) {
		return nil
	}
	c := &clusterPlugins{options: o, runtime: rt, logger: logger, observer: observer, known: make(chan struct{}), changed: make(chan struct{}, 1)}
	if c.client, c.failure = apiClient(o.kubeconfig); c.failure != nil {
		return c
	}
	c.process = clusterplugins.ThisProcess("kubewasm-scheduler", program.ThisBuild().Short(), "")
	c.process.Schedulers, c.process.Secrets = o.profiles, secrets
	c.watch = clusterplugins.New(clusterplugins.Config{Client: c.client, Secrets: secrets, Resources: []clusterplugins.Resource{clusterplugins.SchedulerPlugins}, Apply: c.apply, Logger: logger})
	go func() {
		c.readLabels(ctx)
		go clusterplugins.Report(ctx, c.client, c.process, c.states, logger)
		c.watch.Run(ctx)
	}()
	go c.run(ctx)
	return c
}

// factory returns a factory that makes the plugin of an object if the arguments have cluster, and
// otherwise what another factory makes.
func (c *clusterPlugins) factory(name string, of kube.Factory) kube.Factory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		unknown, ok := args.(*runtime.Unknown)
		if !ok || !declared(unknown.Raw) {
			return of(ctx, args, handle)
		}
		a := new(clusterArgs)
		if err := configfile.YAML(unknown.Raw, a); err != nil {
			return nil, fmt.Errorf("plugin %q: arguments: %w; everything else is that of the SchedulerPlugin", name, err)
		}
		if err := a.FailurePolicy.Check(); err != nil {
			return nil, fmt.Errorf("plugin %q: arguments: %w", name, err)
		}
		return c.make(ctx, handle, &place{profile: handle.ProfileName(), name: name, policy: a.FailurePolicy})
	}
}

// declared reports whether arguments have cluster.
func declared(args []byte) bool {
	var a struct {
		Cluster bool `json:"cluster"`
	}
	return configfile.YAML(args, &a) == nil && a.Cluster || json.Unmarshal(args, &a) == nil && a.Cluster
}

// make makes a plugin. It waits until the objects are known. If they stay unknown, the failure policy
// decides whether the scheduler starts.
func (c *clusterPlugins) make(ctx context.Context, handle fwk.Handle, p *place) (fwk.Plugin, error) {
	if err := c.await(ctx); err != nil {
		err = fmt.Errorf("plugin %q of profile %q: the SchedulerPlugins of the cluster are unknown: %w", p.name, p.profile, err)
		if p.policy != host.Ignore {
			return nil, err
		}
		c.logger.Error("the scheduler starts without a plugin of the cluster", "err", err)
	}
	c.mu.Lock()
	object := c.object(p)
	c.mu.Unlock()
	cfg, err := c.config(p, object)
	plugin, loadErr := kube.LoadReplaceable(ctx, c.runtime, cfg, err, handle)
	if loadErr != nil {
		err = loadErr
		plugin, loadErr = kube.LoadReplaceable(ctx, c.runtime, cfg, err, handle)
	}
	if loadErr != nil {
		return nil, loadErr
	}
	p.plugin = plugin
	p.became(object, cfg, err)
	c.tell(p)
	c.mu.Lock()
	c.places = append(c.places, p)
	c.mu.Unlock()
	c.signal() // The objects may have changed meanwhile.
	return plugin, nil
}

// apiClient returns a client with the connection of a kubeconfig, that of the Pod if it is empty.
func apiClient(kubeconfig string) (*apiserver.Client, error) {
	cluster, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	transport, err := rest.TransportFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	at, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return apiserver.Wrap(at.String(), &http.Client{Transport: transport}), nil
}

// readLabels reads the labels of the process's Pod, for the selectors of objects. A process in no
// Pod has none.
func (c *clusterPlugins) readLabels(ctx context.Context) {
	for wait := leastRetry; c.process.UID != ""; wait = min(2*wait, mostRetry) {
		once, cancel := context.WithTimeout(ctx, clusterWait)
		resp, err := c.client.Do(once, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(c.process.Namespace)+"/pods/"+url.PathEscape(c.process.Name), "", nil)
		var pod metav1.PartialObjectMetadata
		if err == nil {
			err = json.NewDecoder(io.LimitReader(resp.Body, 2<<20)).Decode(&pod)
			resp.Body.Close()
		}
		cancel()
		if err == nil {
			c.mu.Lock()
			c.labels = pod.Labels
			c.mu.Unlock()
			return
		}
		c.logger.Error("the labels of the scheduler's Pod are unknown, by which SchedulerPlugins select it", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// await waits until the objects are known.
func (c *clusterPlugins) await(ctx context.Context) error {
	if c.failure != nil {
		return c.failure
	}
	timer := time.NewTimer(clusterWait)
	defer timer.Stop()
	select {
	case <-c.known:
		return nil
	case <-timer.C:
		return cmp.Or(c.watch.Err(), errors.New("the labels of the Pod are being read"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// apply receives the objects of the API server.
func (c *clusterPlugins) apply(objects []clusterplugins.Object) {
	c.mu.Lock()
	c.objects = objects
	if !c.told {
		c.told = true
		close(c.known)
	}
	c.mu.Unlock()
	c.signal()
}

func (c *clusterPlugins) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run puts objects into service until ctx ends.
func (c *clusterPlugins) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-timer.C:
		}
		next := time.Hour
		c.mu.Lock()
		places := slices.Clone(c.places)
		c.mu.Unlock()
		for _, p := range places {
			if again := c.sync(ctx, p); again > 0 {
				next = min(next, again)
			}
		}
		timer.Reset(next)
	}
}

// sync puts the newest object of a plugin into service, and returns the time until another attempt, 0
// for none.
func (c *clusterPlugins) sync(ctx context.Context, p *place) time.Duration {
	c.mu.Lock()
	object, known := c.object(p), c.told
	same := known && sameObject(p.tried, object)
	rest := time.Until(p.at)
	failed, serving, before := p.err, p.serving, p.cfg
	c.mu.Unlock()
	switch {
	case !known, same && failed == nil, same && object == nil:
		return 0
	case same && rest > 0:
		return rest
	}
	cfg, err := c.config(p, object)
	switch {
	case object == nil:
		err = errors.Join(p.plugin.Replace(ctx, cfg, err), err)
	case err == nil && serving != nil && serving.UID == object.UID && moduleAlone(before, cfg):
		// What the instances of the plugin share stays.
		source, sourceErr := c.runtime.Source(cfg.Module, "module")
		if err = sourceErr; err == nil {
			err = p.plugin.Swap(ctx, source, cfg.Module.SHA256)
		}
		if err == nil {
			break
		}
		fallthrough // Its functions may be others.
	case err == nil:
		err = p.plugin.Replace(ctx, cfg, nil)
	}
	c.mu.Lock()
	if object != nil && err != nil && (serving == nil || serving.UID != object.UID) && (failed == nil || failed.Error() != err.Error() || !same) {
		// There is no version to go on with.
		c.mu.Unlock()
		err = errors.Join(err, p.plugin.Replace(ctx, cfg, err))
		c.mu.Lock()
		p.serving = nil
	}
	p.became(object, cfg, err)
	rest = time.Until(p.at)
	c.mu.Unlock()
	c.tell(p)
	if err == nil || object == nil {
		return 0
	}
	return max(rest, time.Millisecond)
}

// became records an attempt.
func (p *place) became(object *clusterplugins.Object, cfg sched.PluginConfig, err error) {
	if !p.begun || !sameObject(p.tried, object) || err == nil {
		p.wait = leastRetry
	} else {
		p.wait = min(2*p.wait, mostRetry)
	}
	p.begun, p.tried, p.err, p.at = true, object, err, time.Now().Add(p.wait)
	switch {
	case object == nil:
		p.serving = nil
	case err == nil:
		p.serving, p.cfg = object, cfg
	}
}

// tell logs the state of a plugin.
func (c *clusterPlugins) tell(p *place) {
	c.mu.Lock()
	object, err := p.tried, p.err
	c.mu.Unlock()
	switch {
	case object == nil:
		c.logger.Warn("there is no object for a plugin of the cluster", "plugin", p.name, "profile", p.profile, "failurePolicy", string(cmp.Or(p.policy, host.Fail)))
	case err != nil:
		c.logger.Error("a SchedulerPlugin is not in service", "plugin", p.name, "profile", p.profile, "generation", object.Generation, "err", err)
	default:
		c.logger.Info("a SchedulerPlugin is in service", "plugin", p.name, "profile", p.profile, "generation", object.Generation)
	}
}

// moduleAlone reports whether two configurations differ in the module alone, and neither follows it.
func moduleAlone(a, b sched.PluginConfig) bool {
	if a.Module.Follow || b.Module.Follow {
		return false
	}
	a.Module, b.Module = host.ModuleConfig{}, host.ModuleConfig{}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func sameObject(a, b *clusterplugins.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Serves(b)
}

// schedulers are the processes that an object is for.
type schedulers struct {
	// Names are those of profiles, empty for all.
	Names []string `json:"names"`
	// Selector is one on the labels of Pods, empty for all.
	Selector string `json:"selector"`
}

// selects reports whether an object is for a profile. c.mu is held.
func (c *clusterPlugins) selects(object *clusterplugins.Object, profile string) (bool, error) {
	var spec struct {
		Schedulers schedulers `json:"schedulers"`
	}
	if object.Spec == nil {
		return true, nil
	}
	if err := json.Unmarshal(object.Spec, &spec); err != nil {
		return true, err
	}
	selector, err := labels.Parse(spec.Schedulers.Selector)
	if err != nil {
		return true, fmt.Errorf("schedulers.selector: %w", err)
	}
	return (len(spec.Schedulers.Names) == 0 || slices.Contains(spec.Schedulers.Names, profile)) && selector.Matches(c.labels), nil
}

// object returns the object of a plugin, nil if there is none. c.mu is held.
func (c *clusterPlugins) object(p *place) *clusterplugins.Object {
	i := slices.IndexFunc(c.objects, func(o clusterplugins.Object) bool {
		is, _ := c.selects(&o, p.profile)
		return o.Name == p.name && !o.Held && is
	})
	if i < 0 {
		return nil
	}
	return &c.objects[i]
}

// config returns the configuration of a plugin by an object, which may be nil. Even with an error it
// has the name and the failure policy.
func (c *clusterPlugins) config(p *place, object *clusterplugins.Object) (cfg sched.PluginConfig, err error) {
	none := sched.PluginConfig{Config: host.Config{Name: p.name}, FailurePolicy: p.policy}
	switch {
	case object == nil:
		return none, fmt.Errorf("there is no SchedulerPlugin %q for the scheduler %q", p.name, p.profile)
	case object.Spec == nil:
		return none, clusterplugins.ErrTooLarge
	}
	var members map[string]json.RawMessage
	spec, unread := object.Settings()
	if err := json.Unmarshal(spec, &members); err != nil {
		return none, err
	}
	_, err = c.selects(object, p.profile)
	delete(members, "schedulers")
	text, encodeErr := json.Marshal(members)
	err = errors.Join(unread, err, encodeErr, configfile.JSON(text, &cfg))
	if cfg.Name != "" {
		err = errors.Join(err, errors.New("name is that of the object"))
	}
	if cfg.Record != nil {
		err = errors.Join(err, errors.New("record is for the scheduler's configuration, not for objects: its path is one of the machine"))
	}
	if object.Pinned != "" && cfg.Module.OCI != "" {
		cfg.Module.OCI, cfg.Module.Follow = object.Pinned, false
	}
	if err == nil {
		err = errors.Join(cfg.Module.Check("module")...)
	}
	if policyErr := cfg.FailurePolicy.Check(); policyErr != nil {
		return none, errors.Join(err, policyErr)
	}
	cfg.Name, cfg.Logger, cfg.Observer = p.name, c.logger, c.observer
	return cfg, err
}

// states returns the states of the objects that are for this process.
func (c *clusterPlugins) states() []clusterplugins.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		return nil
	}
	states := []clusterplugins.State{}
	for i := range c.objects {
		object := &c.objects[i]
		if object.Held {
			continue // The controller is about to decide on the revision.
		}
		var of []string
		for _, profile := range c.options.profiles {
			if is, _ := c.selects(object, profile); is {
				of = append(of, profile)
			}
		}
		if len(of) == 0 {
			continue
		}
		s := clusterplugins.State{Kind: object.Kind, Name: object.Name, UID: object.UID, Generation: object.Generation, State: string(host.Loading)}
		s.State, s.Message, s.Digest, s.Reference = c.state(object, of)
		for _, p := range c.places {
			if p.name == object.Name && p.serving != nil && p.serving.UID == object.UID {
				s.Revision = p.serving.Revision
			}
		}
		states = append(states, s)
	}
	return states
}

// state returns the state of an object for profiles: that of the one that serves it least. c.mu is
// held.
func (c *clusterPlugins) state(object *clusterplugins.Object, profiles []string) (state, message, digest, reference string) {
	order := []string{string(host.Serving), string(host.Stale), string(host.Loading), string(host.Unavailable), clusterplugins.Refused}
	for _, p := range c.places {
		if p.name != object.Name || !slices.Contains(profiles, p.profile) {
			continue
		}
		now, why := string(host.Loading), ""
		guest := p.plugin.Guest()
		switch {
		case p.tried == nil || p.tried.UID != object.UID:
		case guest == nil && errors.As(p.err, new(*host.LoadError)):
			now, why = string(host.Unavailable), p.err.Error()
		case guest == nil && p.err != nil:
			now, why = clusterplugins.Refused, p.err.Error()
		case p.err != nil:
			now, why = string(host.Stale), p.err.Error()
		case guest != nil && p.tried.Serves(object):
			standing, reason := guest.State()
			if now = string(standing); reason != nil {
				why = reason.Error()
			}
		}
		if guest != nil {
			digest, reference = guest.Digest(), publicerr.Redact(guest.Stats().Reference)
		}
		if state == "" || slices.Index(order, now) > slices.Index(order, state) {
			state, message = now, publicerr.Redact(why)
		}
	}
	if state != "" {
		return state, message, digest, reference
	}
	if i := slices.IndexFunc(c.options.plugins, func(p configuredPlugin) bool { return p.name == object.Name && slices.Contains(profiles, p.profile) }); i >= 0 {
		if c.options.plugins[i].cluster {
			return string(host.Loading), "kube-scheduler has not made it: it starts, or the profile does not enable the plugin", "", ""
		}
		return clusterplugins.Refused, fmt.Sprintf("the scheduler's configuration has a module for the plugin in profile %q, which takes precedence", c.options.plugins[i].profile), "", ""
	}
	return clusterplugins.Refused, fmt.Sprintf("no profile names the plugin: add {name: %[1]s} to plugins.multiPoint.enabled and {name: %[1]s, args: {cluster: true}} to pluginConfig of profile %[2]s, and restart the scheduler", object.Name, strings.Join(profiles, " or ")), "", ""
}

// settings returns the mode and the failure policy of a plugin of the cluster, with the state of one
// without a guest.
func (c *clusterPlugins) settings(profile, name string) (mode host.Mode, policy host.FailurePolicy, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.places {
		if p.profile == profile && p.name == name {
			if p.serving != nil {
				return p.cfg.Mode, p.cfg.FailurePolicy, p.err
			}
			return "", p.policy, p.err
		}
	}
	return "", "", nil
}
