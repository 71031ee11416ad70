package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// statusFlags are the flags of status.
type statusFlags struct {
	kubeFlags
	all, logs bool
	since     time.Duration
	printed   *output
}

// pluginStatus is the status of a plugin, and what its processes report.
type pluginStatus struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace,omitempty"`
	Name       string             `json:"name"`
	Generation int64              `json:"generation"`
	Mode       string             `json:"mode,omitempty"`
	Module     string             `json:"module,omitempty"`
	Created    metav1.Time        `json:"created"`
	Ready      string             `json:"ready,omitempty"`
	Revision   string             `json:"revision,omitempty"`
	InService  bool               `json:"inService"`
	Why        string             `json:"why,omitempty"`
	Digest     string             `json:"digest,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Processes  []processState     `json:"processes,omitempty"`
}

// mostProcesses is the number of processes that serve a plugin alike which are listed one by one.
const mostProcesses = 5

func clusterStatus(t *tool, flags *pflag.FlagSet) action {
	f := &statusFlags{printed: outputFlags(flags)}
	f.declare(flags)
	flags.StringVarP(&f.namespace, "namespace", "n", "", "")
	flags.BoolVar(&f.all, "all", false, "")
	flags.BoolVar(&f.logs, "logs", false, "")
	flags.DurationVar(&f.since, "since", 10*time.Minute, "")
	return func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			return &usageError{fmt.Errorf("status: %d arguments, want one plugin as in zone or NodeHook/zone, or none for all", len(args))}
		}
		if f.logs && len(args) == 0 {
			return &usageError{errors.New("status: --logs is for one plugin: name it")}
		}
		c, err := f.cluster()
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		var wanted string
		if len(args) == 1 {
			wanted = args[0]
		}
		list, denied, err := f.read(ctx, c, wanted)
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		if f.logs {
			return f.lines(ctx, t, c, list)
		}
		r := result{value: list, text: func(w io.Writer) error { return writeStatuses(w, list) }}
		if wanted != "" {
			r.text = func(w io.Writer) error { return f.details(w, list) }
		}
		if err := f.printed.print(t, r); err != nil {
			return err
		}
		if denied != nil {
			return fmt.Errorf("status: plugins are missing: %w", denied)
		}
		if slices.ContainsFunc(list, func(s pluginStatus) bool { return !s.InService }) {
			return errRefused
		}
		return nil
	}
}

// read returns the plugins of the cluster, or those that an argument names, with the reports on them.
// denied has the kinds that the user may not list.
func (f *statusFlags) read(ctx context.Context, c *clusterPlugins, wanted string) (list []pluginStatus, denied, err error) {
	kinds, name := c.kinds, wanted
	if of, rest, ok := strings.Cut(wanted, "/"); ok {
		kind, err := c.kind(of)
		if err != nil {
			return nil, nil, err
		}
		kinds, name = []metav1.APIResource{kind}, rest
	}
	uids := map[string]int{}
	for _, kind := range kinds {
		err := c.list(ctx, c.resource(kind, f.namespace), func(u *unstructured.Unstructured) error {
			if name != "" && u.GetName() != name {
				return nil
			}
			object, err := decoded[pluginObject](u)
			if err != nil {
				return err
			}
			uids[string(object.UID)] = len(list)
			list = append(list, statusOf(kind.Kind, object))
			return nil
		})
		if apierrors.IsForbidden(err) && wanted == "" {
			denied = errors.Join(denied, fmt.Errorf("%s: %w", kind.Kind, err))
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	if wanted != "" && len(list) == 0 {
		return nil, nil, fmt.Errorf("the cluster declares no plugin %s", wanted)
	}
	if len(list) == 0 {
		return nil, nil, denied
	}
	if wanted == "" {
		return list, denied, nil
	}
	err = c.reports(ctx, func(uid string, s processState) {
		if i, ok := uids[uid]; ok {
			list[i].Processes = append(list[i].Processes, s)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		slices.SortFunc(list[i].Processes, func(a, b processState) int {
			return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Generation, b.Generation), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Process, b.Process))
		})
	}
	return list, nil, nil
}

// rank orders states: what does not serve comes first.
func rank(state string) int {
	return slices.Index([]string{"Serving", "Disabled", "Loading", "Stale", "Unavailable", v1alpha1.StateRefused}, state) * -1
}

func statusOf(kind string, p *pluginObject) pluginStatus {
	s := pluginStatus{
		Kind: kind, Namespace: p.Namespace, Name: p.Name, Generation: p.Generation, Mode: p.Spec.Mode, Created: p.CreationTimestamp,
		Ready: p.Status.Ready, Revision: p.Status.Revision, Digest: p.Status.Digest, Conditions: p.Status.Conditions, Module: sourceOf(p),
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		s.Why = "no controller has written a status: is kubewasm-controller installed?"
	case p.Status.ObservedGeneration != p.Generation:
		s.Why = fmt.Sprintf("the status is of generation %d, and the object of %d", p.Status.ObservedGeneration, p.Generation)
	case ready.Status != metav1.ConditionTrue:
		s.Why = cmp.Or(ready.Message, ready.Reason)
	default:
		s.InService = true
	}
	return s
}

// sourceOf returns the source of a plugin's module: the artifact that was pinned, or what the spec names.
func sourceOf(p *pluginObject) string {
	if p.Status.Pin != nil && p.Status.Pin.Generation == p.Generation {
		return p.Status.Pin.Reference
	}
	return moduleText(p.Spec.Module)
}

func writeStatuses(w io.Writer, list []pluginStatus) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "the cluster declares no plugins")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tNAMESPACE\tNAME\tREADY\tREVISION\tMODE\tMODULE\tAGE\tWHY")
	for _, s := range list {
		foreign.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Kind, cmp.Or(s.Namespace, "-"), s.Name, cmp.Or(s.Ready, "-"), cmp.Or(s.Revision, "-"), cmp.Or(s.Mode, "Enforce"), cmp.Or(s.Module, "-"), age(s.Created), s.Why)
	}
	return table.Flush()
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// details writes the conditions and processes of plugins.
func (f *statusFlags) details(w io.Writer, list []pluginStatus) error {
	for i, s := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		foreign.Fprintf(w, "%s %s, generation %d, %s in service\n", s.Kind, strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"), s.Generation, cmp.Or(s.Ready, "0"))
		if s.Module != "" {
			foreign.Fprintf(w, "module %s\n", s.Module)
		}
		if s.Why != "" {
			foreign.Fprintf(w, "not in service as declared: %s\n", s.Why)
		}
		fmt.Fprintln(w)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if len(s.Conditions) != 0 {
			fmt.Fprintln(table, "CONDITION\tSTATUS\tAGE\tREASON\tMESSAGE")
			for _, c := range s.Conditions {
				foreign.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Type, c.Status, age(c.LastTransitionTime), c.Reason, c.Message)
			}
			fmt.Fprintln(table)
		}
		if len(s.Processes) == 0 {
			fmt.Fprintln(table, "no process reports on it")
		} else {
			fmt.Fprintln(table, "PROCESS\tNODE\tSTATE\tGENERATION\tAGE\tDIGEST\tWHY")
			f.processes(table, s.Processes)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// processes writes the rows of processes. Of those in the same state there is one row if there are
// many of them.
func (f *statusFlags) processes(w io.Writer, list []processState) {
	same := func(a, b processState) bool {
		return a.State == b.State && a.Generation == b.Generation && a.Digest == b.Digest && a.Message == b.Message
	}
	for len(list) != 0 {
		p, n := list[0], 1
		for n < len(list) && same(p, list[n]) {
			n++
		}
		rows := list[:n]
		if n > mostProcesses && !f.all {
			foreign.Fprintf(w, "%d processes such as %s/%s\t%s\t%s\t%d\t\t%s\t%s\n", n, p.Namespace, p.Process, p.Node, p.State, p.Generation, short(p.Digest), p.Message)
			rows = nil
		}
		for _, p := range rows {
			since := "-"
			if p.Since != nil {
				since = age(*p.Since)
			}
			foreign.Fprintf(w, "%s/%s\t%s\t%s\t%d\t%s\t%s\t%s\n", p.Namespace, p.Process, p.Node, p.State, p.Generation, since, short(p.Digest), p.Message)
		}
		list = list[n:]
	}
}

func short(digest string) string { return cmp.Or(cut.Text(digest, 12), "-") }

const (
	// mostLogged is the number of processes whose logs are read, those that do not serve first.
	mostLogged = 50
	// mostLogBytes is the maximum size of the log that is read of one process.
	mostLogBytes = 8 << 20
	// logsAtOnce is the number of logs that are read at the same time.
	logsAtOnce = 8
)

// lines prints the lines of the processes' logs that are about a plugin.
func (f *statusFlags) lines(ctx context.Context, t *tool, c *clusterPlugins, list []pluginStatus) error {
	var mu sync.Mutex
	var errs []error
	printed := 0
	for _, s := range list {
		if len(s.Processes) > mostLogged {
			t.warn(fmt.Errorf("%s reports of %d processes: the logs of %d are read, of those that do not serve first", s.Name, len(s.Processes), mostLogged))
			s.Processes = s.Processes[:mostLogged]
		}
		about := strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")
		gate, all := make(chan struct{}, logsAtOnce), sync.WaitGroup{}
		for _, p := range s.Processes {
			gate <- struct{}{}
			all.Go(func() {
				defer func() { <-gate }()
				lines, err := f.log(ctx, c, p, about)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					errs = append(errs, fmt.Errorf("read the log of %s/%s: %w", p.Namespace, p.Process, err))
				}
				for _, line := range lines {
					foreign.Fprintf(t.out, "%s %s\n", p.Process, line)
					printed++
				}
			})
		}
		all.Wait()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if printed == 0 {
		t.warn(fmt.Errorf("no process has logged anything about it for %s", f.since))
	}
	return nil
}

// log returns the lines of a process's log that name a plugin.
func (f *statusFlags) log(ctx context.Context, c *clusterPlugins, p processState, name string) (lines []string, err error) {
	seconds := max(1, int64(f.since/time.Second))
	body, err := c.core.CoreV1().Pods(p.Namespace).GetLogs(p.Process, &corev1.PodLogOptions{SinceSeconds: &seconds}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	scanner := bufio.NewScanner(io.LimitReader(body, mostLogBytes))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); names(line, name) {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}

// names reports whether a line of a log, in text or JSON, has a value that is the name of a plugin.
func names(line, name string) bool {
	for _, key := range []string{"plugin", "policy"} {
		for _, form := range []string{key + "=" + name + " ", key + `="` + name + `"`, `"` + key + `":"` + name + `"`} {
			if strings.Contains(line+" ", form) {
				return true
			}
		}
	}
	return false
}
