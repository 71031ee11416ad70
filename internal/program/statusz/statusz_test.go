package statusz

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/host/shadow"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]media{
		"": plain, "  ": plain, "*/*": plain, "text/plain": plain, "text/plain;charset=utf-8": plain, "text/*;q=0.1": plain,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": page, // Of browsers.
		"text/plain;q=0.5, text/html;q=0.4":                               plain,
		"text/html;q=0.4, text/plain;q=0.5":                               plain,
		"application/json":                                                structured,
		"application/json;as=Statusz;g=kubewasm.dev;v=v1alpha1":           structured,
		"application/json;v=v1beta1;g=config.k8s.io;as=Statusz":           structuredKEP,
		"application/json;as=Statusz;g=config.k8s.io;v=v9":                unacceptable,
		"application/json;as=Table;g=meta.k8s.io;v=v1":                    unacceptable,
		"application/json;as=Table;g=meta.k8s.io;v=v1, text/plain;q=0.1":  plain,
		"application/yaml":                                                unacceptable, "image/png": unacceptable, "text/html;q=0": unacceptable, "text/html;q=2": unacceptable, "text/html;q=x": unacceptable, ";;;": unacceptable,
	} {
		if got := negotiate(accept); got != want {
			t.Errorf("%q gets %d, want %d", accept, got, want)
		}
	}
}

func newRuntime(t *testing.T) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.Background()) })
	return rt
}

func TestRequests(t *testing.T) {
	c := &Config{Program: "kubewasm-test", Runtime: newRuntime(t), Collector: new(Collector), Paths: []string{"/metrics"}}
	for _, tt := range []struct {
		method, target, accept string
		code                   int
		contentType, has       string
	}{
		{"GET", Path, "", 200, "text/plain; charset=utf-8", "\nkubewasm-test statusz\nWarning: This endpoint is not meant to be machine parseable"},
		{"HEAD", Path, "", 200, "text/plain; charset=utf-8", ""},
		{"GET", Path + "?section=open", "", 200, "text/plain; charset=utf-8", "nothing fails open\n"},
		{"GET", Path + "?section=all", "", 400, "text/plain; charset=utf-8", "section is none of plugins"},
		{"GET", Path, "text/html", 200, "text/html; charset=utf-8", "<h1>kubewasm-test on "},
		{"GET", Path, "application/json", 200, "application/json;as=Statusz;g=kubewasm.dev;v=v1alpha1", `"apiVersion":"kubewasm.dev/v1alpha1","metadata":{"name":"kubewasm-test"}`},
		{"GET", Path, "application/json;as=Statusz;g=config.k8s.io;v=v1beta1", 200, "application/json;as=Statusz;g=config.k8s.io;v=v1beta1", `{"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata"`},
		{"GET", Path, "image/png", 406, "text/plain; charset=utf-8", "acceptable are text/plain, text/html, application/json"},
		{"POST", Path, "", 405, "text/plain; charset=utf-8", "read-only"},
		{"DELETE", Path, "text/html", 405, "text/plain; charset=utf-8", "read-only"},
	} {
		r := httptest.NewRequest(tt.method, tt.target, strings.NewReader("body"))
		r.Header.Set("Accept", tt.accept)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != tt.code || w.Header().Get("Content-Type") != tt.contentType || !strings.Contains(w.Body.String(), tt.has) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s of %q: %d %v\n%.300s", tt.method, tt.target, tt.accept, w.Code, w.Header(), w.Body)
		}
		if csp := w.Header().Get("Content-Security-Policy"); (csp != "") != (tt.contentType == "text/html; charset=utf-8") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s of %q: Content-Security-Policy is %q", tt.method, tt.accept, csp)
		}
	}
}

func TestLocal(t *testing.T) {
	for _, tt := range []struct {
		remote, local, host string
		want                bool
	}{
		{"127.0.0.1:4000", "127.0.0.1:8443", "localhost:8443", true},
		{"[::1]:4000", "[::1]:8443", "[::1]:8443", true},
		{"10.0.0.7:4000", "10.0.0.7:8443", "10.0.0.7:8443", true},
		{"10.0.0.8:4000", "10.0.0.7:8443", "10.0.0.7:8443", false},
		{"127.0.0.1:4000", "127.0.0.1:8443", "evil.example.com:8443", false}, // A name that was bound to this machine.
		{"127.0.0.1:4000", "", "localhost", false},
		{"pipe", "127.0.0.1:8443", "localhost", false},
	} {
		r := httptest.NewRequest(http.MethodGet, Path, nil)
		r.RemoteAddr, r.Host = tt.remote, tt.host
		if tt.local != "" {
			addr, err := net.ResolveTCPAddr("tcp", tt.local)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
		}
		if got := Local(r); got != tt.want {
			t.Errorf("%+v: local is %t", tt, got)
		}
	}
}

// hostile are texts of guests and users.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><style>*{display:none}</style>`, `' onmouseover='alert(1)`, "{{.Secret}}", "javascript:alert(1)",
	"\x1b[2J\x07\u202egnp.exe\x00\xff", "-->]]>", strings.Repeat("<b>", 400_000),
}

// status returns the state of a program with so many plugins, of which some have hostile texts.
func hostileStatus(n int) *Status {
	s := &Status{Replica: hostile[0], Engine: host.EngineCompiler, EngineReason: hostile[1], NotReady: hostile[2], Alarm: hostile[3], Recordings: []Recording{{Path: hostile[4], Error: hostile[5]}}}
	s.Metadata.Name = "kubewasm-webhook"
	for i := range n {
		text := hostile[i%len(hostile)]
		p := Plugin{Name: fmt.Sprintf("policy-%02d %s", i, text), Version: text, State: host.States()[i%5], Reason: text, Reference: "ghcr.io/acme/" + text, Digest: strings.Repeat("a1b2", 16), Note: text, Mode: host.Enforce, FailurePolicy: host.Fail,
			Profile: []profile.Cost{{Function: text, Flat: 10}}, Shadow: &shadow.Status{State: "comparing", Reason: text, Groups: []shadow.Group{{Change: text, Calls: 3, Examples: []string{text}}}}}
		for ago := 59; ago >= 0; ago-- {
			p.LastHour.Minutes = append(p.LastHour.Minutes, Minute{Ago: ago, Calls: uint64(1 + (i+ago*ago)%40), Errors: uint64(ago % 7 / 6), P99: time.Duration(1+(i*ago)%90) * 100 * time.Microsecond})
		}
		p.LastHour.Calls, p.LastHour.P50, p.LastHour.P99, p.LastHour.Errors = 1000, time.Millisecond, 3*time.Millisecond, 8
		s.Plugins = append(s.Plugins, p)
	}
	for _, text := range hostile {
		s.Refusals = append(s.Refusals, Event{Plugin: text, Object: text, User: text, Event: text, Reason: text})
		s.Traps = append(s.Traps, Event{Plugin: text, Function: text, Event: text, Reason: text, Stack: text + "\n" + text})
		s.FailingOpen = append(s.FailingOpen, Open{text[:min(len(text), nameBytes)], "mode Monitor"})
	}
	return s
}

// kept returns the texts as the bounds of a page leave them.
func kept(s *Status) *Status {
	var c Collector
	of := *s
	for _, e := range s.Refusals {
		c.refusals.add(e)
	}
	for _, e := range s.Traps {
		c.traps.add(e)
	}
	of.Refusals, of.Traps = c.refusals.last(), c.traps.last()
	of.Plugins = (&Config{Collector: &c}).bounded(s.Plugins, time.Now(), true)
	return &of
}

// elements are those of pages, with the attributes that they may have.
var elements = map[string]string{
	"html": "lang", "head": "", "meta": "charset http-equiv content name", "title": "", "link": "rel href", "style": "", "body": "", "h1": "", "h2": "id", "h3": "", "p": "class", "dl": "", "div": "class", "dt": "", "dd": "",
	"nav": "", "a": "href", "details": "", "summary": "", "b": "", "span": "class", "small": "", "table": "", "thead": "", "tbody": "", "tr": "", "th": "", "td": "", "pre": "", "ul": "", "li": "",
	"svg": "class viewBox preserveAspectRatio role aria-label width height x y", "path": "class d", "rect": "class width height", "text": "x y",
}

// checkElements fails for an element or an attribute that no template has.
func checkElements(t *testing.T, html string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v\n%q", err, html[max(0, int(d.InputOffset())-200):d.InputOffset()])
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		allowed, ok := elements[e.Name.Local]
		if !ok {
			t.Fatalf("the page has the element %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			if !strings.Contains(" "+allowed+" ", " "+a.Name.Local+" ") || strings.HasPrefix(a.Value, "javascript:") {
				t.Fatalf("%s has the attribute %s=%q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
}

func TestHostileTexts(t *testing.T) {
	s := kept(hostileStatus(50))
	var page, text bytes.Buffer
	if err := s.writePage(&page); err != nil {
		t.Fatal(err)
	}
	checkElements(t, page.String())
	if err := s.writeText(&text, ""); err != nil {
		t.Fatal(err)
	}
	var report bytes.Buffer
	r := Report{Title: hostile[0], Flame: &Frame{Name: "root", Cost: 100}}
	for _, h := range hostile {
		r.Facts, r.Tables, r.Pairs = append(r.Facts, Fact{h, h}), append(r.Tables, Table{Heading: h, Columns: []string{h}, Rows: [][]string{{h}}}), append(r.Pairs, Pair{h, h, h, h, []string{h}})
		r.Flame.Child(h).Cost += 10
	}
	if err := r.Write(&report); err != nil {
		t.Fatal(err)
	}
	checkElements(t, report.String())
	for name, b := range map[string]*bytes.Buffer{"page": &page, "text": &text, "report": &report} {
		if strings.ContainsAny(b.String(), "\x1b\x07\x00\u202e") {
			t.Errorf("the %s has control characters", name)
		}
		if b.Len() > 2<<20 {
			t.Errorf("the %s has %d bytes", name, b.Len())
		}
	}
}

func TestAPageOf500PoliciesIsBounded(t *testing.T) {
	s := kept(hostileStatus(500))
	var b bytes.Buffer
	if err := s.writePage(&b); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := writeJSON(&text, s); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 8<<20 || text.Len() > 8<<20 {
		t.Errorf("%d bytes of HTML, %d of JSON", b.Len(), text.Len())
	}
}

func TestTheLastHour(t *testing.T) {
	var c Collector
	now := time.Unix(1_800_000_000, 0)
	call := func(ago, took time.Duration, fuel int64, err error) {
		c.Called(t.Context(), host.CallEvent{Plugin: "zone", Function: "filter", Start: now.Add(-ago), Duration: took, Fuel: fuel, Err: err})
	}
	for range 98 {
		call(0, 900*time.Microsecond, 10, nil)
	}
	call(5*time.Minute, 40*time.Millisecond, 100, errors.New("trap"))
	call(5*time.Minute, 40*time.Millisecond, 100, nil)
	call(61*time.Minute, time.Hour, 1, nil)
	c.Called(t.Context(), host.CallEvent{Plugin: "zone", Function: "_initialize", Start: now, Duration: time.Hour})
	got := (*c.plugins.Load())["zone"].sum(now)
	got.Total = 0
	want := Calls{Calls: 100, Errors: 1, Fuel: 1180, FuelPerCall: 11, P50: bound(bucketOf(900 * time.Microsecond)), P99: bound(bucketOf(40 * time.Millisecond)), Minutes: []Minute{
		{Ago: 5, Calls: 2, Errors: 1, P99: bound(bucketOf(40 * time.Millisecond))}, {Ago: 0, Calls: 98, P99: bound(bucketOf(900 * time.Microsecond))},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// An hour later the places of the minutes are taken by others.
	now = now.Add(time.Hour)
	call(0, time.Millisecond, 1, nil)
	if got := (*c.plugins.Load())["zone"].sum(now); got.Calls != 1 || got.Errors != 0 || got.Fuel != 1 {
		t.Errorf("an hour later: %+v", got)
	}
}

func TestBuckets(t *testing.T) {
	for d := time.Duration(1); d < 20*time.Second; d += d/7 + 1 {
		i := bucketOf(d)
		if d >= bound(i) || i > 0 && d < bound(i-1) {
			t.Fatalf("%s is in the bucket %d, from %s to %s", d, i, bound(max(0, i-1)), bound(i))
		}
	}
	if got := bucketOf(time.Hour); got != buckets-1 {
		t.Errorf("an hour is in the bucket %d", got)
	}
}

func TestACallAllocatesNothing(t *testing.T) {
	var c Collector
	e := host.CallEvent{Plugin: "zone", Function: "filter", Start: time.Now(), Duration: time.Millisecond}
	c.Called(t.Context(), e)
	if n := testing.AllocsPerRun(100, func() { c.Called(context.Background(), e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The error of the last call on a candidate is for those who may read refusals.
func TestTheReasonOfAShadow(t *testing.T) {
	for _, private := range []bool{true, false} {
		got := boundedShadow(shadow.Status{State: shadow.Stopped, Reason: "10 calls in a row have failed, the last: no such user: bob"}, private)
		if !strings.HasPrefix(got.Reason, "10 calls in a row have failed") || strings.Contains(got.Reason, "bob") != private {
			t.Errorf("private %t: the reason is %q", private, got.Reason)
		}
	}
}

func TestPluginsAreBounded(t *testing.T) {
	var c Collector
	now := time.Now()
	for i := range 2 * maxHours {
		c.Called(t.Context(), host.CallEvent{Plugin: fmt.Sprint(i), Start: now})
	}
	if n := len(*c.plugins.Load()); n != maxHours {
		t.Errorf("%d plugins", n)
	}
	more := host.CallEvent{Plugin: "more", Start: now}
	if n := testing.AllocsPerRun(10, func() { c.Called(context.Background(), more) }); n != 0 {
		t.Errorf("%v allocations for a call of a plugin without room", n)
	}
	more.Start = now.Add(2 * minutes * time.Minute) // The others have no calls in the hour before now either.
	for _, h := range *c.plugins.Load() {
		h.minutes[uint64(now.Unix()/60)%minutes].Store(nil)
	}
	if c.Called(t.Context(), more); (*c.plugins.Load())["more"] == nil {
		t.Error("there is no room in a later minute")
	}
}

// A minute whose first call is being counted has no plot.
func TestAMinuteThatBegins(t *testing.T) {
	var h hour
	now := time.Now()
	h.at(now.Unix() / 60)
	if c := h.sum(now); len(c.Minutes) != 0 {
		t.Errorf("minutes are %+v", c.Minutes)
	}
}

// Lines of a refusal and of a trap are kept, and those that a guest makes up are not.
func TestTheLog(t *testing.T) {
	var c Collector
	var out bytes.Buffer
	logger := slog.New(c.Log(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
	logger.With("policy", "labels").Info("policy denied the request", "uid", "u", "kind", "Pod", "namespace", "shop", "name", "web", "operation", "CREATE", "user", "bob", "message", "no label")
	logger.Warn("refused by the failure of a runtime hook", "plugin", "cpuset", "request", "PreCreateContainer of container shop/web/nginx", "err", errors.New("out of fuel"))
	logger.Error("the guest trapped", "plugin", "labels", "function", "validate", "reason", "unreachable", "stack", "a\nb")
	logger.Error("the guest trapped", "profile", "batch", "plugin", "zone", "function", "filter", "reason", "unreachable", "stack", "c")
	logger.Info("policy denied the request", "plugin", "liar", slog.Group("guest", "uid", "u", "message", "forged", "stack", "s"))
	logger.WithGroup("guest").Info("policy denied the request", "policy", "liar", "uid", "u", "message", "forged", "stack", "s")
	logger.Info("loaded the module", "plugin", "labels", "digest", "d")
	logger.Debug("policy denied the request", "policy", "labels", "uid", "u", "message", "m")
	zero := func(events []Event) []Event {
		for i := range events {
			events[i].Time, events[i].Count = time.Time{}, 0
		}
		return events
	}
	if diff := cmp.Diff([]Event{
		{Plugin: "cpuset", Event: "refused by the failure of a runtime hook", Object: "PreCreateContainer of container shop/web/nginx", Reason: "out of fuel"},
		{Plugin: "labels", Event: "policy denied the request", Object: "CREATE Pod shop/web", User: "bob", Reason: "no label"},
	}, zero(c.refusals.last())); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Event{{Plugin: "batch/zone", Event: "the guest trapped", Function: "filter", Reason: "unreachable", Stack: "c"}, {Plugin: "labels", Event: "the guest trapped", Function: "validate", Reason: "unreachable", Stack: "a\nb"}}, zero(c.traps.last())); diff != "" {
		t.Errorf("traps (-want +got):\n%s", diff)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "the guest trapped") {
		t.Errorf("the log is\n%s", got)
	}
}

// One plugin, and those that only monitor, do not take the places of others.
func TestEventsOfOthersStay(t *testing.T) {
	var c Collector
	c.Refuse(Event{Plugin: "labels", Object: "Pod shop/web"})
	for i := range 3 * keptEvents {
		c.Refuse(Event{Plugin: "loud", Object: fmt.Sprint(i), Reason: strings.Repeat("x", 1<<20)})
		c.Refuse(Event{Plugin: fmt.Sprint("monitor-", i), Monitored: true})
		c.Refuse(Event{Plugin: "again", Object: "Pod shop/db"})
	}
	events := c.refusals.last()
	if len(events) != keptEvents || events[0].Plugin != "again" || events[0].Count != 3*keptEvents || len(events[2].Reason) > textBytes {
		t.Errorf("%d events, the last is %+v", len(events), events[0])
	}
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Plugin == "labels" }) {
		t.Error("the event of a quiet plugin is gone")
	}
}

func TestFailingOpen(t *testing.T) {
	for _, tt := range []struct {
		p    Plugin
		want string
	}{
		{Plugin{State: host.Serving, Mode: host.Enforce, FailurePolicy: host.Fail}, ""},
		{Plugin{State: host.Unavailable, FailurePolicy: host.Fail}, ""},
		{Plugin{State: host.Serving, Mode: host.Monitor, FailurePolicy: host.Fail}, "mode Monitor: its answers do not count"},
		{Plugin{State: host.Serving, FailurePolicy: host.Ignore}, "failurePolicy Ignore: requests pass when it fails"},
		{Plugin{State: host.Unavailable, FailurePolicy: host.Ignore}, "Unavailable and failurePolicy Ignore: all requests pass"},
		{Plugin{State: host.Serving, BreakerOpen: true, FailurePolicy: host.Ignore}, "circuit breaker open and failurePolicy Ignore: all requests pass"},
		{Plugin{State: host.Serving, FailurePolicy: host.KeepLast}, "failurePolicy KeepLast: the last decision stays when it fails"},
		{Plugin{State: host.Disabled, FailurePolicy: host.Fail}, "disabled: it is not called"},
	} {
		if got := tt.p.open(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.p, got, tt.want)
		}
	}
}

func TestFlame(t *testing.T) {
	root := &Frame{Name: "all", Cost: 1000}
	a := root.Child("a")
	a.Cost = 600
	a.Child("b").Cost = 150
	root.Child("c").Cost = 300
	root.Child("too narrow").Cost = 0
	var got []string
	for _, b := range flameOf(root).Boxes {
		got = append(got, fmt.Sprintf("%s %s+%s %d", b.Title, b.X, b.Width, b.Y))
	}
	if diff := cmp.Diff([]string{"all: 1000, 100.00 % 0.0000+100.0000 0", "a: 600, 60.00 % 0.0000+60.0000 18", "b: 150, 15.00 % 0.0000+15.0000 36", "c: 300, 30.00 % 60.0000+30.0000 18"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A page of 50 policies with hostile texts, in a browser.
func TestBrowser(t *testing.T) {
	s := kept(hostileStatus(50))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
		if err := s.writePage(w); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	b := operate.NewBrowser(t)
	for _, width := range []int{360, 1280} {
		p := b.Open(server.URL, width, 800)
		if len(p.Errors) != 0 {
			t.Errorf("at %d pixels: %s", width, p.Errors)
		}
		if p.Width > float64(width) {
			t.Errorf("the page is %v pixels wide in a window of %d", p.Width, width)
		}
		if n := strings.Count(p.Text, "policy-"); n < 50 {
			t.Errorf("the page shows %d policies", n)
		}
	}
}

// Two plugins of one name have pages and calls of their own, and one that is declared and not loaded
// is on the page.
func TestPluginsOfTheRuntime(t *testing.T) {
	rt, collector := newRuntime(t), new(Collector)
	for scope, calls := range map[string]int{"default-scheduler": 1, "batch": 3} {
		p, err := rt.Load(t.Context(), host.Config{Name: "good", Scope: scope, Module: host.ModuleConfig{File: "../../../host/testdata/good.wasm"}, GuestConfig: []byte(`{"zone": "a"}`), Observer: collector}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		for range calls {
			inst, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			inst.Release()
		}
	}
	c := &Config{Runtime: rt, Collector: collector, Declared: func() []Plugin {
		return []Plugin{{Name: "batch/good", Mode: host.Monitor}, {Name: "absent"}}
	}}
	var got []string
	for _, p := range c.status(true).Plugins {
		got = append(got, fmt.Sprintf("%s %s %s %d %t", p.Name, p.State, p.Mode, p.LastHour.Calls, p.Digest != "" && p.Reference != "" && p.InstanceLimit != 0))
	}
	if diff := cmp.Diff([]string{"absent Loading  0 false", "batch/good Serving Monitor 3 true", "default-scheduler/good Serving  1 true"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkCalled(b *testing.B) {
	var c Collector
	e := host.CallEvent{Plugin: "zone", Function: "filter", Start: time.Now(), Duration: time.Microsecond, Fuel: 100}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Called(context.Background(), e)
		}
	})
}
