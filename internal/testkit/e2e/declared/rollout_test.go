package declared_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// rolling is a policy with steps, and what asks it.
type rolling struct {
	*world
	replicas []*replica
	// stop stops the requests of a part of the test.
	stop func() map[string]int
	// answers are the answers until now, by their words.
	answers map[string]int
}

// stepped is the name of the policy, and the label of the Pods that it is about.
const stepped = "stepped"

// declares applies the policy with a module. So many steps end at once, and the others are held.
func (r *rolling) declares(module string, ended int) {
	r.Helper()
	pause := func(step int) string {
		if step <= ended {
			return "0s"
		}
		return "1h"
	}
	r.must(r.declare("", stepped, fmt.Sprintf(`"module":{%s},"rollout":{"steps":[{"mode":"Monitor","pause":%q},{"mode":"Shadow","pause":%q},{"percent":30,"pause":%q}]}`,
		module, pause(1), pause(2), pause(3)), stepped))
}

// expects has requests sent until it is called again, whose answers must be words. The requests before
// end when these have begun.
func (r *rolling) expects(words ...string) {
	before := r.stop
	r.stop = r.hammer(stepped, words...)
	for word, n := range before() {
		r.answers[word] += n
	}
}

// rolled waits until the condition RolledOut has a reason about the newest generation, and the rollout is
// in a step, 0 for none. It returns the status and the message of the condition.
func (r *rolling) rolled(reason string, step int32) (s *v1alpha1.RolloutStatus, message string) {
	r.Helper()
	r.until(fmt.Sprintf("the rollout is %s in step %d", reason, step), func() bool {
		object, err := r.policies("").Get(r.Context(), stepped, metav1.GetOptions{})
		r.must(err)
		of, _, err := unstructured.NestedMap(object.Object, "status")
		r.must(err)
		var status v1alpha1.PluginStatus
		r.must(runtime.DefaultUnstructuredConverter.FromUnstructured(of, &status))
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRolledOut)
		if c == nil || c.ObservedGeneration != object.GetGeneration() || c.Reason != reason || status.Rollout == nil || status.Rollout.Step != step {
			return false
		}
		s, message = status.Rollout, c.Message
		return true
	})
	return s, message
}

// tried waits until all replicas report on a trial.
func (r *rolling) tried(trial int64) {
	r.Helper()
	r.until(fmt.Sprint("all replicas report on the trial ", trial), func() bool {
		list, err := r.reports().List(r.Context(), metav1.ListOptions{})
		r.must(err)
		n := 0
		for i := range list.Items {
			plugins, _, err := unstructured.NestedSlice(list.Items[i].Object, "plugins")
			r.must(err)
			for _, p := range plugins {
				if p, ok := p.(map[string]any); ok && p["name"] == stepped && p["trial"] == trial {
					n++
				}
			}
		}
		return n == len(r.replicas)
	})
}

// serves waits until each replica answers with a word, or one of them with a word and the others with
// another one. It returns the number of the one.
func (r *rolling) serves(one, others string) (of int) {
	r.Helper()
	client := r.authority.HTTP()
	defer client.CloseIdleConnections()
	var words []string
	defer func() {
		if r.Failed() {
			r.Logf("the replicas answer %q", words)
		}
	}()
	r.until(fmt.Sprintf("%q and %q", one, others), func() bool {
		counts := map[string]int{}
		words = nil
		for i, replica := range r.replicas {
			answer, err := ask(client, "https://127.0.0.1:"+replica.port+"/validate/"+stepped)
			word := wordOf(strings.TrimPrefix(answer, "false "))
			if word == "" && answer != "true " {
				word = fmt.Sprint(answer, err) // It may not have the policy yet.
			}
			if counts[word]++; word == one {
				of = i
			}
			words = append(words, word)
		}
		return one == others && counts[one] == len(r.replicas) || counts[one] == 1 && counts[others] == len(r.replicas)-1
	})
	return of
}

// restarts ends a replica and starts it again in a Pod of its name.
func (r *rolling) restarts(i int) {
	r.Helper()
	r.replicas[i].leave()
	r.replicas[i] = r.newReplica(r.replicas[i].name)
}

// testRollouts: changes of a policy come into service step by step, those that trap are rolled back at their
// first step, and a field brings an older one back, while the controller and the replicas end and start
// again. Each answer is that of a version which may serve then. running is the controller.
func testRollouts(w *world, replicas []*replica, running *program) {
	r := &rolling{world: w, replicas: append(replicas, w.newReplica("webhook-last")), stop: func() map[string]int { return nil }, answers: map[string]int{}}

	// The first revision monitors, and skips the shadow. All replicas have it then.
	r.expects("")
	r.declares(deny("one1"), 0)
	s, _ := r.rolled("Progressing", 1)
	r.tried(s.Trial)
	r.until("API servers ask the policy", func() bool {
		return meta.IsStatusConditionTrue(r.status("", stepped).Conditions, v1alpha1.ConditionSent)
	})
	r.serves("", "")
	r.expects("", "one1")
	r.declares(deny("one1"), 1)
	r.rolled("Progressing", 3)
	r.serves("one1", "")
	r.declares(deny("one1"), 3)
	r.rolled("Complete", 0)
	r.serves("one1", "one1")
	r.want("shop", stepped, "one1")
	r.expects("one1")

	// The next is asked in a shadow, skips the mode Monitor, and serves on one replica then.
	r.declares(deny("two2"), 0)
	s, _ = r.rolled("Progressing", 2)
	r.tried(s.Trial)
	r.serves("one1", "one1")
	r.expects("one1", "two2")
	r.declares(deny("two2"), 2)
	before, _ := r.rolled("Progressing", 3)
	in := r.serves("two2", "one1")
	// Without the controller, a replica that starts again takes what its step says.
	running.kill()
	r.restarts(in)
	if got := r.serves("two2", "one1"); got != in {
		r.Errorf("%s is in the step, want %s", r.replicas[got].name, r.replicas[in].name)
	}
	running = w.controller()
	r.restarts((in + 1) % len(r.replicas))
	if got := r.serves("two2", "one1"); got != in {
		r.Errorf("%s is in the step, want %s", r.replicas[got].name, r.replicas[in].name)
	}
	r.until("the new processes are counted", func() bool { return r.status("", stepped).Ready == "1/3" })
	if after, _ := r.rolled("Progressing", 3); after.Trial != before.Trial || after.Below != before.Below || !after.Since.Equal(before.Since) {
		r.Errorf("the controller that was started again has the rollout %+v, want %+v", after, before)
	}
	// The step ends while the controller does.
	r.declares(deny("two2"), 3)
	running.kill()
	w.controller()
	r.rolled("Complete", 0)
	r.serves("two2", "two2")
	r.expects("two2")

	// A shadow finds a change that traps before it decides anything.
	r.declares(`"bytes":"`+trap+`"`, 0)
	_, message := r.rolled("RolledBack", 0)
	if !strings.HasPrefix(message, "revision 3 was rolled back in step 2 of 3: it fails on ") || !strings.Contains(message, "calls failed in the shadow alone") && !strings.Contains(message, "the shadow has stopped: ") || !strings.HasSuffix(message, "; revision 2 serves") {
		r.Errorf("the message is %q", message)
	}
	r.serves("two2", "two2")
	r.expects("two2")

	// Without a shadow, one replica traps, and no other one ever.
	r.expects("two2", trapped)
	traps := r.asksAll()
	r.must(r.declare("", stepped, `"module":{"bytes":"`+trap+`"},"rollout":{"steps":[{"percent":30,"pause":"1h"},{"percent":60,"pause":"1h"}]}`, stepped))
	_, message = r.rolled("RolledBack", 0)
	r.serves("two2", "two2")
	r.until("the processes serve revision 2", func() bool { return r.status("", stepped).Revision == "2" })
	r.expects("two2")
	var one string
	for name, n := range traps() {
		if n == 0 {
			continue
		}
		if one != "" {
			r.Errorf("%s and %s have trapped", one, name)
		}
		one = name
	}
	if want := "revision 3 was rolled back in step 1 of 2: it fails on 1 of 1 processes, as on " + one + ": 1 failed calls, the first: "; one == "" || !strings.HasPrefix(message, want) || !strings.HasSuffix(message, "; revision 2 serves") {
		r.Errorf("the message is %q, want %s…", message, want)
	}

	// One field rolls back to a revision of the history, and the change that removes it repairs.
	r.expects("two2", "one1")
	r.must(r.declare("", stepped, `"module":{"bytes":"`+trap+`"},"revision":1`, stepped))
	r.rolled("Complete", 0)
	r.serves("one1", "one1")
	r.expects("one1")
	r.expects("one1", "fix3")
	r.declares(deny("fix3"), 3)
	r.rolled("Complete", 0)
	r.serves("fix3", "fix3")
	r.expects("fix3")
	r.until("the policy serves", func() bool { return r.status("", stepped).Ready == "3/3" })
	r.expects("fix3", "")
	r.must(r.policies("").Delete(r.Context(), stepped, metav1.DeleteOptions{}))
	r.want("shop", stepped, "")
	r.expects("")
	r.stop()
	r.Logf("answers in a rollout: %v", r.answers)
	for _, word := range []string{"", "one1", "two2", "fix3"} {
		if r.answers[word] == 0 {
			r.Errorf("%q was no answer: %v", word, r.answers)
		}
	}
}

// asksAll asks each replica by itself until it is stopped, and returns how often each has trapped.
func (r *rolling) asksAll() (stop func() map[string]int) {
	var asking sync.WaitGroup
	done := make(chan struct{})
	counts := make([]atomic.Int64, len(r.replicas))
	var first, last atomic.Int64
	for i, replica := range r.replicas {
		asking.Go(func() {
			client := r.authority.HTTP()
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				answer, err := ask(client, "https://127.0.0.1:"+replica.port+"/validate/"+stepped)
				switch word := wordOf(strings.TrimPrefix(answer, "false ")); {
				case err == nil && word == trapped:
					counts[i].Add(1)
					first.CompareAndSwap(0, time.Now().UnixNano())
					last.Store(time.Now().UnixNano())
				case err != nil || word != "two2":
					r.Errorf("%s answers %q, %v", replica.name, answer, err)
					return
				}
			}
		})
	}
	return func() map[string]int {
		close(done)
		asking.Wait()
		r.Logf("from the first trap to the last one: %s", time.Duration(last.Load()-first.Load()).Round(time.Millisecond))
		traps := map[string]int{}
		for i, replica := range r.replicas {
			traps[replica.name] = int(counts[i].Load())
		}
		return traps
	}
}
