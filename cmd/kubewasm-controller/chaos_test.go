package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// argsVariable has the arguments of a controller, a line each: the test binary is one then.
const argsVariable = "KUBEWASM_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if args := os.Getenv(argsVariable); args != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := run(ctx, strings.Split(args, "\n"))
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// replicas are webhooks that serve the policies of the cluster, as the program does: from the time at
// which they have loaded a policy until its object is gone.
type replicas struct {
	*world
	// mu is held while what the replicas serve changes.
	mu sync.Mutex
	// serving are the objects that each Pod serves, by their keys.
	serving map[string]map[plugin.Key]types.UID
	pods    map[string]*corev1.Pod
}

// policies returns the objects of policies, by their keys.
func (w *world) policies(ctx context.Context) (map[plugin.Key]plugin.Plugin, error) {
	all := map[plugin.Key]plugin.Plugin{}
	for _, list := range plugin.Lists(plugin.Webhook) {
		if err := w.admin.List(ctx, list); err != nil {
			return nil, err
		}
		for _, p := range plugin.All(list) {
			all[p.Key] = p
		}
	}
	return all, nil
}

// sync has a replica serve the policies that there are, and report.
func (r *replicas) sync(ctx context.Context, pod *corev1.Pod) error {
	declared, err := r.policies(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	mine := map[plugin.Key]types.UID{}
	var states []v1alpha1.PluginState
	for key, p := range declared {
		mine[key] = p.GetUID()
		states = append(states, state(p.Object, "Serving", ""))
	}
	r.serving[pod.Name] = mine
	r.mu.Unlock()
	return r.write(ctx, pod, states...)
}

// check returns an error if an entry is for a policy that no replica serves. The replicas stand still
// meanwhile.
func (r *replicas) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths, err := r.paths(ctx)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	served := map[string]bool{}
	for _, mine := range r.serving {
		for key := range mine {
			served[pathOf(key)] = true
		}
	}
	for _, path := range paths {
		if !served[path] {
			return fmt.Errorf("an entry asks for %s, which no replica serves", path)
		}
	}
	return nil
}

func pathOf(k plugin.Key) string {
	if k.Namespace != "" {
		return "/validate/" + k.Namespace + "/" + k.Name
	}
	return "/validate/" + k.Name
}

// histories are NodeHooks whose spec changes all the time: to new versions, of which some trap, back to
// revisions, and with rollouts that are paused or go on.
type histories struct {
	*fleet
	random *rand.Rand
	hooks  []*v1alpha1.NodeHook

	mu sync.Mutex
	// declared are the versions that a spec has had.
	declared map[string]bool
	changes  int
}

// spec returns a new spec of a hook.
func (h *histories) spec(name string, traps bool, rollout string) runtime.RawExtension {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
	version := fmt.Sprintf("%s-%d", name, h.changes)
	if traps {
		version += `":1,"traps`
	}
	spec := hookSpec(version, rollout)
	h.declared[name+versionOf(spec.Raw)] = true
	return spec
}

// versionOf returns the guestConfig of a spec.
func versionOf(spec []byte) string {
	var of struct{ GuestConfig map[string]int }
	if err := json.Unmarshal(spec, &of); err != nil {
		panic(err)
	}
	return fmt.Sprint(of.GuestConfig)
}

// change changes one hook.
func (h *histories) change(ctx context.Context) error {
	o := h.hooks[h.random.IntN(len(h.hooks))]
	rollout := []string{
		``, `"rollout":{"steps":[{"percent":20,"pause":"0s"},{"percent":60,"pause":"0s"}]}`, `"rollout":{"steps":[{"percent":10,"pause":"0s"},{"nodeSelector":"pool=first","pause":"1s"}]}`,
		`"rollout":{"paused":true,"steps":[{"percent":50}]}`, `"rollout":{"steps":[{"percent":30,"pause":"1h"}]}`,
	}[h.random.IntN(5)]
	var patch []byte
	switch h.random.IntN(4) {
	case 0:
		patch = fmt.Appendf(nil, `{"spec":{"revision":%d}}`, h.random.IntN(max(1, h.changes/len(h.hooks)))+1)
	case 1:
		patch = []byte(`{"spec":{"revision":null}}`)
	default:
		return h.put(ctx, o, h.spec(o.Name, h.random.IntN(3) == 0, rollout))
	}
	return h.admin.Patch(ctx, &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, client.RawPatch(types.MergePatchType, patch))
}

// put replaces the spec of a hook.
func (h *histories) put(ctx context.Context, o *v1alpha1.NodeHook, spec runtime.RawExtension) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		o.Spec = spec
		return h.admin.Update(ctx, o)
	})
}

// check returns an error if a node serves a version that was never declared, or has an object
// without one that it had before.
func (h *histories) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		n.mu.Lock()
		objects := n.objects
		n.mu.Unlock()
		for i := range objects {
			o := n.version(&objects[i])
			if o == nil {
				return fmt.Errorf("%s has lost %s", n.name, objects[i].Name)
			}
			if version := versionOf(o.Spec); !h.declared[o.Name+version] {
				return fmt.Errorf("%s serves %s of %s, which was never declared", n.name, version, o.Name)
			}
		}
	}
	return nil
}

// TestKilledControllers kills controllers at random 50 times while policies come and go, and while
// NodeHooks are rolled out. Two of them work at the same time, without an election.
func TestKilledControllers(t *testing.T) {
	w := newWorld(t)
	r := &replicas{world: w, serving: map[string]map[plugin.Key]types.UID{}, pods: map[string]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	fail := func(format string, args ...any) {
		if ctx.Err() == nil {
			t.Errorf(format, args...)
			cancel()
		}
	}
	for i := range 3 {
		pod := w.pod(t, "webhook", fmt.Sprintf("webhook-%d", i), "n")
		working.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				// Another writer of the report, the API server, is slower or faster than the controller.
				if err := r.sync(ctx, pod); err != nil && !apierrors.IsConflict(err) {
					fail("replica: %v", err)
				}
				pause(ctx, time.Duration(random.IntN(60))*time.Millisecond)
			}
		})
	}
	working.Go(func() {
		for ctx.Err() == nil {
			if err := r.check(ctx); err != nil {
				fail("%v", err)
			}
			pause(ctx, 5*time.Millisecond)
		}
	})
	created, deleted := 0, 0
	changing, settle := context.WithCancel(ctx)
	defer settle()
	working.Go(func() {
		random := rand.New(rand.NewPCG(7, 7))
		for changing.Err() == nil {
			o := client.Object(policy(fmt.Sprintf("p%d", random.IntN(12)), ""))
			if random.IntN(3) == 0 {
				o = &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: o.GetName()}, Spec: spec("")}
			}
			var err error
			if random.IntN(2) == 0 {
				if err = w.admin.Create(ctx, o); err == nil {
					created++
				}
			} else if err = w.admin.Delete(ctx, o); err == nil {
				deleted++
			}
			if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
				fail("change policies: %v", err)
			}
			if random.IntN(40) == 0 {
				// Someone removes a configuration by hand.
				for _, c := range []client.Object{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}} {
					c.SetName("kubewasm-webhook-cluster")
					if err := w.admin.Delete(ctx, c); client.IgnoreNotFound(err) != nil {
						fail("%v", err)
					}
				}
			}
			pause(changing, time.Duration(random.IntN(100))*time.Millisecond)
		}
	})
	// start runs a controller of its own process until it is killed.
	args := strings.Join([]string{
		"-kubeconfig=" + w.Kubeconfig, "-namespace=" + namespace, "-ca-file=" + w.caFile, "-leader-elect=false", "-metrics-addr=0", "-probe-addr=0", "-log-level=error",
	}, "\n")
	start := func() (kill func() error) {
		cmd := self.Command(t, []string{argsVariable + "=" + args})
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() error {
			if err := cmd.Process.Kill(); err != nil {
				return fmt.Errorf("the controller ended: %w: %s", err, out.String())
			}
			err := cmd.Wait()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				return fmt.Errorf("the controller ended: %w: %s", err, out.String())
			}
			return nil
		}
	}
	random := rand.New(rand.NewPCG(3, 3))
	running := []func() error{start(), start()}
	h := &histories{fleet: &fleet{}, random: rand.New(rand.NewPCG(5, 5)), declared: map[string]bool{}}
	for _, name := range []string{"one", "two", "three"} {
		o := &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: h.spec(name, false, "")}
		w.create(t, o)
		h.hooks = append(h.hooks, o)
	}
	h.fleet = newFleet(t, w, 10)
	for _, o := range h.hooks {
		w.rolled(t, o, "Complete")
		w.status(t, o, "10/10", "Ready=True/Serving")
	}
	working.Go(func() {
		for ctx.Err() == nil {
			if err := h.change(ctx); err != nil && !apierrors.IsConflict(err) {
				fail("change hooks: %v", err)
			}
			for range 5 + h.random.IntN(40) {
				for _, n := range h.nodes {
					n.call()
				}
				if err := h.check(); err != nil {
					fail("%v", err)
				}
				if !pause(ctx, 20*time.Millisecond) {
					return
				}
			}
		}
	})
	for range 50 {
		if !pause(ctx, time.Duration(250+random.IntN(1200))*time.Millisecond) {
			break
		}
		i := random.IntN(2)
		if err := running[i](); err != nil {
			fail("%v", err)
		}
		running[i] = start()
	}
	if ctx.Err() == nil {
		// What there is gets its requests, whatever happened before.
		want := func() error {
			declared, err := w.policies(ctx)
			if err != nil {
				return err
			}
			var all []string
			for key, p := range declared {
				if p.GetDeletionTimestamp().IsZero() {
					all = append(all, pathOf(key))
				}
			}
			slices.Sort(all)
			got, err := w.paths(ctx)
			if err == nil && !slices.Equal(got, all) {
				err = fmt.Errorf("the paths are %v, want %v", got, all)
			}
			return err
		}
		settle() // There may be no moment between two changes at which they agree.
		eventually(t, "entries of all policies", want)
	}
	cancel()
	working.Wait()
	t.Logf("created %d policies, deleted %d, changed hooks %d times", created, deleted, h.changes)
	// Each hook comes to an end with its last spec.
	for _, o := range h.hooks {
		if err := h.put(t.Context(), o, h.spec(o.Name, false, `"rollout":{"steps":[{"percent":30,"pause":"0s"}]}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range h.hooks {
		w.rolled(t, o, "Complete")
		w.status(t, o, "10/10", "Ready=True/Serving")
	}
	for _, kill := range running {
		if err := kill(); err != nil {
			t.Error(err)
		}
	}
	if created < 50 || deleted < 50 {
		t.Errorf("created %d policies and deleted %d: that tests nothing", created, deleted)
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
