package manage_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

// says is a guest that denies everything with a text.
func says(text string) []byte {
	const prefix = "\x00asm\x01\x00\x00\x00"
	section := func(id byte, body string) string { return string([]byte{id, byte(len(body))}) + body }
	name := func(s string) string { return string([]byte{byte(len(s))}) + s }
	module := prefix +
		// Types: (i32, i32) -> (), () -> i64.
		section(1, "\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e") +
		section(2, "\x01"+name("kubewasm")+name("status_reason")+"\x00\x00") +
		section(3, "\x02\x01\x01") +
		section(5, "\x01\x00\x01") +
		section(7, "\x03"+name("memory")+"\x02\x00"+name("kubewasm_abi_v1")+"\x00\x01"+name("validate")+"\x00\x02") +
		// The marker returns 1 << 32; validate gives its reason and returns deny.
		section(10, "\x02"+"\x08\x00\x42\x80\x80\x80\x80\x10\x0b"+"\x0a\x00\x41\x00\x41"+string([]byte{byte(len(text))})+"\x10\x00\x42\x02\x0b") +
		section(11, "\x01\x00\x41\x00\x0b"+name(text))
	return []byte(module)
}

func digest(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

type fixture struct {
	*manage.Manager
	engine *admission.Engine
	dir    string
}

// TestAClosedManagerChangesNothing asks for each change after Close.
func TestAClosedManagerChangesNothing(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	spec := func() manage.PluginSpec {
		var s manage.PluginSpec
		s.Name, s.Version = "a", "1"
		return s
	}
	if err := f.Load(t.Context(), spec(), says("a")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(f.dir, "policies.yaml")
	if err := os.WriteFile(file, []byte("plugins: ["+plugin("b", "")+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	parsed, err := manage.ParseFile([]byte("plugins: [" + plugin("b", "") + "]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"Load":       func() error { return f.Load(t.Context(), spec(), says("a")) },
		"Apply":      func() error { return f.Apply(t.Context(), parsed) },
		"FollowFile": func() error { return f.FollowFile(t.Context(), file) },
		"Remove":     func() error { return f.Remove("a") },
		"SetEnabled": func() error { return f.SetEnabled("a", false) },
		"Rollback":   func() error { _, err := f.Rollback(t.Context(), "a", ""); return err },
		"the API": func() error {
			request := httptest.NewRequest(http.MethodDelete, "/plugins/a", nil)
			request.Header.Set("Authorization", "Bearer t")
			w := httptest.NewRecorder()
			f.API(manage.Auth{Token: func() (string, error) { return "t", nil }}).ServeHTTP(w, request)
			if w.Code != http.StatusServiceUnavailable {
				return fmt.Errorf("code %d: %s", w.Code, w.Body)
			}
			return host.ErrClosed
		},
	} {
		if err := change(); !errors.Is(err, host.ErrClosed) {
			t.Errorf("%s after Close: got %v, want host.ErrClosed", name, err)
		}
	}
	if n := len(f.engine.Policies()); n != 0 {
		t.Errorf("the engine has %d policies", n)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// start returns a manager with a directory for files.
func start(t *testing.T, change func(*manage.Config)) *fixture {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{engine: admission.NewEngine(), dir: t.TempDir()}
	cfg := manage.Config{Runtime: rt, Engine: f.engine, Interval: 10 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	if f.Manager, err = manage.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// t.Context has ended.
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask returns the message of the denial of a request, empty if it is allowed.
func (f *fixture) ask(kind string) string {
	r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create}
	r.Kind.Kind, r.Resource.Version, r.Resource.Resource = kind, "v1", strings.ToLower(kind)+"s"
	r.Object.Raw = []byte(`{}`)
	response := f.engine.Validate(context.Background(), r)
	if response.Allowed {
		return strings.Join(response.Warnings, "; ")
	}
	return said(f.engine, response)
}

// said returns the message of a denial, without its name if there is only one policy.
func said(e *admission.Engine, denial *admissionv1.AdmissionResponse) string {
	message := denial.Result.Message
	if policies := e.Policies(); len(policies) == 1 {
		message = strings.TrimPrefix(message, policies[0].Name()+": ")
	}
	return message
}

// until waits for a message.
func (f *fixture) until(t *testing.T, kind, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for got := f.ask(kind); got != want; got = f.ask(kind) {
		if time.Now().After(deadline) {
			t.Fatalf("message is %q, want %q", got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestFileDeclaresPolicies(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	if err := f.Ready(); err != nil {
		t.Error(err)
	}
	f.write(t, "a.wasm", string(says("a")))
	f.write(t, "b.wasm", string(says("b")))
	config := func(b string) string {
		return `
plugins:
- name: a
  module: {file: ` + f.dir + `/a.wasm, follow: true}
- name: pods-only
  module: {file: ` + f.dir + `/b.wasm, follow: true}
  order: -1
  match:
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
` + b
	}
	file := f.write(t, "policies.yaml", config(""))
	if err := f.FollowFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if got := f.ask("Pod"); got != "pods-only: b; a: a" {
		t.Errorf("message is %q", got)
	}
	if got := f.ask("Node"); got != "a: a" {
		t.Errorf("message is %q", got)
	}

	f.write(t, "a.wasm", string(says("other")))
	f.until(t, "Node", "a: other")

	f.write(t, "policies.yaml", config("- {name: c, enabled: false, module: {bytes: "+base64.StdEncoding.EncodeToString(says("c"))+"}}\n- {name: d, module: {bytes: "+base64.StdEncoding.EncodeToString(says("d"))+"}}"))
	f.until(t, "Node", "a: other; d: d")

	f.write(t, "policies.yaml", "plugins: [{name: a, mode: Monitor, module: {file: "+f.dir+"/a.wasm, follow: true}}]")
	f.until(t, "Node", "")

	f.write(t, "policies.yaml", "plugins: [{name: a}]") // No file to use: all stays.
	f.write(t, "policies.yaml", `
groups:
- name: both
  expression: x() || !z()
  message: neither
  members:
    x: {name: both.x, module: {file: `+f.dir+`/a.wasm, follow: true}}
    z: {name: both.z, module: {file: `+f.dir+`/b.wasm, follow: true}}
- name: one
  expression: x()
  message: refused
  members:
    x: {name: one.x, module: {file: `+f.dir+`/a.wasm, follow: true}}
`)
	f.until(t, "Node", "one: refused (x: other)")
}

func TestBadPolicyIsRefusedAndOthersServe(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.write(t, "good.wasm", string(says("good")))
	f.write(t, "bad.wasm", "\x00asm no module")
	file := f.write(t, "policies.yaml", `
plugins:
- {name: good, module: {file: `+f.dir+`/good.wasm, follow: true}, match: {rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [nodes]}]}}
- {name: bad, module: {file: `+f.dir+`/bad.wasm, follow: true}, match: {rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [pods]}]}}
- {name: open, module: {file: `+f.dir+`/none.wasm, follow: true}, failurePolicy: Ignore}
`)
	err := f.FollowFile(t.Context(), file)
	if err == nil || !strings.Contains(err.Error(), `plugin "bad": load module`) || !strings.Contains(err.Error(), `plugin "open": fetch module`) {
		t.Errorf("error is %v", err)
	}
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), `policy "bad" is not available`) || strings.Contains(err.Error(), "good") {
		t.Errorf("ready is %v", err)
	}
	// What is guarded by a policy that is not there does not pass.
	if got := f.ask("Pod"); !strings.HasPrefix(got, `policy "bad" is not available: plugin "bad": load module`) {
		t.Errorf("message is %q", got)
	}
	if got := f.ask("Node"); got != "good: good" {
		t.Errorf("message is %q", got)
	}
	if got := f.ask("Secret"); !strings.HasPrefix(got, `policy "open" is not available`) || !strings.HasSuffix(got, "(ignored)") {
		t.Errorf("warning is %q", got)
	}
	f.write(t, "bad.wasm", string(says("better")))
	f.until(t, "Pod", "bad: better")
	f.write(t, "bad.wasm", "worse")
	deadline := time.Now().Add(time.Minute)
	for f.List()[1].Error == "" && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := f.List()[1]; !strings.Contains(got.Error, "load module") || got.Digest != digest(says("better")) {
		t.Errorf("policy is %+v", got)
	}
	if got := f.ask("Pod"); got != "bad: better" {
		t.Errorf("message is %q", got)
	}
}

// A group is what its members' files hold, also if one of them changed while the
// group was built, or could not be read then.
func TestGroupsFollowTheirMembers(t *testing.T) {
	var fetches atomic.Int64
	var first, second atomic.Value
	first.Store(says("first"))
	second.Store([]byte(nil))
	f := start(t, func(c *manage.Config) {
		c.Runtime.AddSources(host.Sources{ConfigMaps: host.ObjectGetterFunc(func(_ context.Context, _, name string) (map[string][]byte, error) {
			if name == "first" {
				module := first.Load().([]byte)
				if fetches.Add(1) == 1 {
					first.Store(says("changed")) // While the group serves.
				}
				return map[string][]byte{"wasm": module}, nil
			}
			if module := second.Load().([]byte); module != nil {
				return map[string][]byte{"wasm": module}, nil
			}
			return nil, errors.New("not found")
		})})
	})
	file := func(expression, members string) *manage.File {
		parsed, err := manage.ParseFile([]byte("groups: [{name: g, expression: " + expression + ", message: refused, members: {" + members + "}}]"))
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	member := func(alias, name string) string {
		return alias + ": {name: g." + alias + ", module: {configMap: {namespace: ns, name: " + name + ", key: wasm}, follow: true}}"
	}
	if err := f.Apply(t.Context(), file("a()", member("a", "first"))); err != nil {
		t.Fatal(err)
	}
	f.untilCause(t, "changed")

	err := f.Apply(t.Context(), file("a() && b() && c()", member("a", "first")+", "+member("b", "second")+", "+member("c", "second")))
	if err == nil || !strings.Contains(err.Error(), "member b: ") || !strings.Contains(err.Error(), "member c: ") {
		t.Errorf("error is %v", err)
	}
	f.untilCause(t, "changed") // The old one serves.
	second.Store(says("second"))
	first.Store(says("newest"))
	f.untilCause(t, "newest")
	if got := f.List()[0].Error; got != "" {
		t.Errorf("error is %s", got)
	}
}

// untilCause waits for a denial with a cause.
func (f *fixture) untilCause(t *testing.T, want string) {
	t.Helper()
	r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create}
	got := ""
	for deadline := time.Now().Add(time.Minute); got != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("cause is %q, want %q; %+v", got, want, f.List())
		}
		response := f.engine.Validate(context.Background(), r)
		if response.Allowed || len(response.Result.Details.Causes) == 0 {
			t.Fatalf("answer is %+v", response)
		}
		got = strings.TrimSuffix(response.Result.Details.Causes[0].Message, " (policy g)")
	}
}

// A file that does not exist yet is applied when it does, and the server is not ready before.
func TestFileThatComesLater(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.ExpectFile()
	if err := f.Ready(); err == nil {
		t.Error("ready without the file")
	}
	file := filepath.Join(f.dir, "policies.yaml")
	if err := f.FollowFile(t.Context(), file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if err := f.Ready(); err == nil {
		t.Error("ready without the file")
	}
	f.write(t, "policies.yaml", "plugins: [{name: d, module: {bytes: "+base64.StdEncoding.EncodeToString(says("d"))+"}}]")
	f.until(t, "Pod", "d")
	until(t, "ready, soon after the policy serves", func() bool { return f.Ready() == nil })
}

// A megabyte of aliases is not a hundred gigabytes.
func TestParseFileRefusesAliasesWithoutEnd(t *testing.T) {
	file := "plugins: [{name: a, guest: &a " + strings.Repeat("x", 1<<16) + "}]\nmore: [" + strings.Repeat("*a,", 1000) + "*a]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := manage.ParseFile([]byte(file))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, yamlsize.ErrTooLong) {
		t.Errorf("error is %.200v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d bytes were allocated for %d", n, len(file))
	}
}

func TestParseFileNamesEveryMistake(t *testing.T) {
	_, err := manage.ParseFile([]byte(`
plugins:
- {name: A, module: {file: x, follow: true}}
- {name: b, mode: Hope, failurePolicy: Pray}
- {name: b, module: {file: x, https: 'y', follow: true}}
- {name: c, module: {https: "https://example.com/c.wasm"}, objects: [{resource: pods}, {resource: v1/pods, namespaces: []}]}
groups:
- {name: g}
`))
	want := []string{
		`configuration: plugin "A": a name is at most 63 lower-case letters, digits, '-' and '.'`,
		`plugin "b": module is missing: set one of file, https, oci, configMap, secret and bytes`,
		`plugin "b": mode is "Hope", want Enforce or Monitor`,
		`failurePolicy is "Pray", want Fail or Ignore`,
		`there are two policies "b"`,
		`plugin "b": module has file and https, want one of them`,
		`plugin "b": module.https needs sha256`,
		`plugin "b": module.follow needs a file, oci, configMap or secret: the module of a URL is fixed by its sha256`,
		`plugin "c": module.https needs sha256`,
		`plugin "c": objects: "pods" is not version/resource or group/version/resource`,
		`plugin "c": objects[1].namespaces is empty: leave it out for all`,
		`group "g": has no members`,
	}
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if _, err := manage.ParseFile([]byte("plugins: [{name: a, sauce: {}}]")); err == nil || !strings.Contains(err.Error(), "sauce") {
		t.Errorf("error is %v", err)
	}
}

// compressed is a module as gzip makes it.
func compressed(t *testing.T, module []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(module); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompressedModules(t *testing.T) {
	f := start(t, nil)
	f.write(t, "a.wasm.gz", string(compressed(t, says("small"))))
	file := f.write(t, "policies.yaml", "plugins: [{name: a, module: {file: "+f.dir+"/a.wasm.gz, follow: true}}]")
	if err := f.FollowFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if got := f.ask("Pod"); got != "small" || f.List()[0].Digest != digest(says("small")) {
		t.Errorf("message is %q, %+v", got, f.List())
	}
	f.write(t, "a.wasm.gz", string(compressed(t, says("other"))))
	f.until(t, "Pod", "other")
	refused := func(data []byte, sha256, want string) {
		t.Helper()
		parsed, err := manage.ParseFile([]byte("plugins: [{name: b, module: {bytes: " + base64.StdEncoding.EncodeToString(data) + ", sha256: '" + sha256 + "'}}]"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Apply(t.Context(), parsed); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	whole := compressed(t, says("b"))
	refused(whole[:20], "", `plugin "b": fetch module: decompress module: unexpected EOF`)
	refused(compressed(t, make([]byte, 64<<20+1)), "", "it has more than 67108864 bytes")
	refused(whole, digest(whole), "sha256 of the module is")
	refused(whole, digest(says("b")), "")
}

// Every limit of a file is one of the guest, and what cannot be a limit is refused.
func TestLimits(t *testing.T) {
	f := start(t, nil)
	apply := func(limits string) error {
		parsed, err := manage.ParseFile([]byte("plugins: [{name: p, limits: {" + limits + "}, module: {bytes: " + base64.StdEncoding.EncodeToString(says("p")) + "}}]"))
		if err != nil {
			t.Fatal(err)
		}
		return f.Apply(t.Context(), parsed)
	}
	if err := apply("memoryBytes: 1048576, stackBytes: 262144, fuel: 5000, timeout: 70ms, instances: 2, outputBytes: 100, resultBytes: 200, logBytes: 300, keptBytes: 400, stateEntries: 5, stateBytes: 500, compile: 3s"); err != nil {
		t.Fatal(err)
	}
	inst, err := f.engine.Policies()[0].(*admission.Plugin).Guest().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	got := inst.Limits()
	got.BuildTimeout, got.HeldInstances = 0, 0 // Not of the file.
	want := host.Limits{MemoryBytes: 1 << 20, StackBytes: 256 << 10, Fuel: 5000, Timeout: 70 * time.Millisecond, Instances: 2, OutputBytes: 100, ResultBytes: 200, LogBytes: 300, KeptBytes: 400, StateEntries: 5, StateBytes: 500, Compile: 3 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if err := apply("memoryBytes: 1, timeout: -1s"); err == nil || !strings.Contains(err.Error(), "memoryBytes is 1") || !strings.Contains(err.Error(), "limits.timeout is -1s") {
		t.Errorf("error is %v", err)
	}
}

func TestSources(t *testing.T) {
	module := says("from afar")
	objects := func(kind string) host.ObjectGetter {
		return host.ObjectGetterFunc(func(_ context.Context, namespace, name string) (map[string][]byte, error) {
			if namespace != "policies" || name != "p" {
				return nil, errors.New("not found")
			}
			return map[string][]byte{"policy.wasm": says(kind)}, nil
		})
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(module) }))
	defer server.Close()
	f := start(t, func(c *manage.Config) {
		c.Runtime.AddSources(host.Sources{ConfigMaps: objects("configmap"), Secrets: objects("secret"), HTTPS: host.HTTPSOptions{Client: server.Client()}})
	})
	for source, want := range map[string]string{
		`{configMap: {namespace: policies, name: p, key: policy.wasm}}`:        "configmap",
		`{secret: {namespace: policies, name: p, key: policy.wasm}}`:           "secret",
		`{https: "` + server.URL + `/p.wasm", sha256: ` + digest(module) + `}`: "from afar",
	} {
		parsed, err := manage.ParseFile([]byte("plugins: [{name: p, module: " + source + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Apply(t.Context(), parsed); err != nil {
			t.Error(err)
		}
		if got := f.ask("Pod"); got != want {
			t.Errorf("%s: message is %q", source, got)
		}
	}
	parsed, err := manage.ParseFile([]byte("plugins: [{name: p, module: {https: \"" + server.URL + "\", sha256: \"" + strings.Repeat("0", 64) + "\"}}]"))
	if err != nil {
		t.Fatal(err)
	}
	var wrong *host.DigestError
	if err := f.Apply(t.Context(), parsed); !errors.As(err, &wrong) {
		t.Errorf("error is %v", err)
	}
}

// client calls the API.
type client struct {
	t     *testing.T
	url   string
	token string
	http  *http.Client
}

func (c *client) do(method, path string, body any) (int, map[string]any) {
	c.t.Helper()
	var data []byte
	if text, ok := body.(string); ok {
		data = []byte(text)
	} else if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			c.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(data))
	if err != nil {
		c.t.Fatal(err)
	}
	if len(data) != 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(out, &answer); err != nil {
		c.t.Fatalf("%s: %v", out, err)
	}
	return resp.StatusCode, answer
}

func (c *client) want(method, path string, body any, code int, want map[string]any) {
	c.t.Helper()
	got, answer := c.do(method, path, body)
	if diff := cmp.Diff(want, answer); got != code || diff != "" {
		c.t.Errorf("%s %s: %d, want %d (-want +got):\n%s", method, path, got, code, diff)
	}
}

func loadBody(name, version string, module []byte, more map[string]any) map[string]any {
	body := map[string]any{
		"metadata":    map[string]any{"name": name, "version": version, "description": "says it", "author": "me", "limits": map[string]any{"timeoutMs": 500, "maxFuel": 1000000}},
		"wasm_binary": base64.StdEncoding.EncodeToString(module), "operations": []string{"CREATE", "UPDATE"},
	}
	for key, value := range more {
		body[key] = value
	}
	return body
}

// apiFixture is a manager that keeps its state in a directory, with its API.
type apiFixture struct {
	*fixture
	*client
	state string
}

func (a *apiFixture) withState(c *manage.Config) { c.Directory = a.state }

// answers checks what the policies answer about a Pod.
func (a *apiFixture) answers(t *testing.T, want string) {
	t.Helper()
	if got := a.ask("Pod"); got != want {
		t.Errorf("message is %q, want %q", got, want)
	}
}

// TestAPI is the life of a policy by the API: each step begins where the one before ended.
func TestAPI(t *testing.T) {
	a := &apiFixture{state: t.TempDir()}
	a.fixture = start(t, a.withState)
	token := func() (string, error) { return "secret\n", nil }
	server := httptest.NewServer(a.API(manage.Auth{Token: token}))
	defer server.Close()
	for _, step := range []struct {
		name string
		run  func(*apiFixture, *testing.T)
	}{
		{"a policy is loaded and listed", (*apiFixture).testLoad},
		{"what is wrong is refused, and the policy stays", (*apiFixture).testRefused},
		{"a newer version is disabled, enabled and rolled back", (*apiFixture).testVersions},
		{"what was loaded is there after a restart", (*apiFixture).testRestart},
		{"a module that was changed is not loaded", (*apiFixture).testChangedModule},
		{"what cannot be read guards everything, until it is removed", (*apiFixture).testTornRecord},
		{"a directory that cannot be written to", (*apiFixture).testReadOnlyState},
		{"policies are removed, and nothing is left over", (*apiFixture).testRemove},
		{"a policy of the file is not the API's", (*apiFixture).testDeclared},
	} {
		t.Run(step.name, func(t *testing.T) {
			a.client = &client{t, server.URL, "secret", server.Client()}
			step.run(a, t)
		})
	}
}

func (a *apiFixture) testLoad(t *testing.T) {
	a.want("GET", "/plugins", nil, 200, map[string]any{"plugins": []any{}})
	a.want("POST", "/plugins", loadBody("p", "1.0.0", says("one"), nil), 201, map[string]any{"status": "created"})
	a.answers(t, "one")
	_, got := a.do("GET", "/plugins", nil)
	list := got["plugins"].([]any)
	if len(list) != 1 {
		t.Fatalf("plugins are %v", got)
	}
	p := list[0].(map[string]any)
	delete(p, "loadedAt")
	if diff := cmp.Diff(map[string]any{
		"name": "p", "version": "1.0.0", "description": "says it", "operations": []any{"CREATE", "UPDATE"}, "enabled": true,
		"origin": "api", "digest": digest(says("one")), "mode": "Enforce", "failurePolicy": "Fail", "state": "Serving",
	}, p); diff != "" {
		t.Errorf("plugin (-want +got):\n%s", diff)
	}
}

func (a *apiFixture) testRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		body any
		want string
	}{
		{"no JSON", "{", "read request"},
		{"an unknown field", `{"metadata":{"name":"p"},"wasm":""}`, `unknown field "wasm"`},
		{"half a module", loadBody("p", "2", []byte("\x00asm"), nil), "load module"},
		{"no module", loadBody("p", "2", nil, nil), "the module is empty"},
		{"a name with a slash", loadBody("../p", "2", says("x"), nil), "a name is at most 63"},
		{"no operations", loadBody("p", "2", says("x"), map[string]any{"operations": []string{}}), "operations is empty"},
		{"an unknown operation", loadBody("p", "2", says("x"), map[string]any{"operations": []string{"PATCH"}}), `has "PATCH"`},
		{"another digest", loadBody("p", "2", says("x"), map[string]any{"metadata": map[string]any{"name": "p", "sha256": strings.Repeat("0", 64)}}), "sha256 of the module is"},
	} {
		code, answer := a.do("POST", "/plugins", test.body)
		if text, _ := answer["error"].(string); code != 400 || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %v, want 400 %s", test.name, code, answer, test.want)
		}
		a.answers(t, "one")
	}
}

func (a *apiFixture) testVersions(t *testing.T) {
	a.want("POST", "/plugins", loadBody("p", "2.0.0", says("two"), map[string]any{"fail_open": true}), 201, map[string]any{"status": "created"})
	a.answers(t, "two")
	a.want("POST", "/plugins/p/disable", nil, 200, map[string]any{"status": "disabled"})
	// A webhook of the policy's own does not ask it, either.
	if one, ok := a.engine.ForPolicy("p"); !ok || !one.Validate(t.Context(), &admissionv1.AdmissionRequest{}).Allowed {
		t.Error("the policy that is disabled denies, or is gone")
	}
	a.answers(t, "")
	a.want("POST", "/plugins/p/enable", nil, 200, map[string]any{"status": "enabled"})
	a.want("POST", "/plugins/p/rollback", nil, 200, map[string]any{"status": "rolled back", "version": "1.0.0", "digest": digest(says("one"))})
	a.answers(t, "one")
	if _, got := a.do("GET", "/plugins/p/versions", nil); len(got["versions"].([]any)) != 2 {
		t.Errorf("versions are %v", got)
	}
	a.want("POST", "/plugins/p/rollback", `{"version":"2.0.0"}`, 200, map[string]any{"status": "rolled back", "version": "2.0.0", "digest": digest(says("two"))})
	a.want("POST", "/plugins/p/rollback", `{"version":"3"}`, 404, map[string]any{"error": `policy "p": version "3" to roll back to: not found`})
	a.want("POST", "/plugins", loadBody("q", "1", says("q"), map[string]any{"enabled": false}), 201, map[string]any{"status": "created"})
}

// copied returns a copy of a state directory, which its server still uses.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	return to
}

func (a *apiFixture) testRestart(t *testing.T) {
	again := start(t, func(c *manage.Config) { c.Directory = copied(t, a.state) })
	if got := again.ask("Pod"); got != "p: two" {
		t.Errorf("message is %q", got)
	}
	if got := again.List(); len(got) != 2 || got[0].Version != "2.0.0" || got[1].Enabled {
		t.Errorf("policies are %+v", got)
	}
	if v, err := again.Rollback(t.Context(), "p", "1.0.0"); err != nil || v.Digest != digest(says("one")) {
		t.Errorf("rolled back to %+v, %v", v, err)
	}
	if got := again.ask("Pod"); got != "p: one" {
		t.Errorf("message is %q", got)
	}
}

func (a *apiFixture) testChangedModule(t *testing.T) {
	state := copied(t, a.state)
	file := filepath.Join(state, "modules", digest(says("q"))+".wasm")
	if err := os.WriteFile(file, says("z"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, func(c *manage.Config) { c.Directory = state })
	if got := again.List()[1].Error; !strings.Contains(got, "sha256 is") {
		t.Errorf("error is %q", got)
	}
}

func (a *apiFixture) testTornRecord(t *testing.T) {
	state := copied(t, a.state)
	if err := os.WriteFile(filepath.Join(state, "torn.json"), []byte(`{"spec":`), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, func(c *manage.Config) { c.Directory = state })
	if got := again.ask("Node"); !strings.Contains(got, `policy "torn" is not available: `+filepath.Join(state, "torn.json")+": the document is empty") {
		t.Errorf("message is %q", got)
	}
	// And the others can be changed meanwhile.
	if err := again.SetEnabled("p", false); err != nil {
		t.Error(err)
	}
	if err := again.Remove("torn"); err != nil {
		t.Error(err)
	}
	if got := again.ask("Node"); got != "" {
		t.Errorf("message is %q", got)
	}
}

func (a *apiFixture) testReadOnlyState(t *testing.T) {
	if err := os.Chmod(a.state, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // Permissions are not for root.
		if err := os.Rename(a.state, a.state+".gone"); err != nil {
			t.Fatal(err)
		}
		defer os.Rename(a.state+".gone", a.state)
	}
	defer os.Chmod(a.state, 0o700)
	code, answer := a.do("POST", "/plugins", loadBody("w", "1", says("w"), nil))
	if text, _ := answer["error"].(string); code != 500 || !strings.HasPrefix(text, `policy "w" is in service, and not kept: `) {
		t.Errorf("%d %v", code, answer)
	}
}

func (a *apiFixture) testRemove(t *testing.T) {
	a.want("DELETE", "/plugins/w", nil, 200, map[string]any{"status": "removed"})
	a.want("DELETE", "/plugins/p", nil, 200, map[string]any{"status": "removed"})
	a.want("DELETE", "/plugins/p", nil, 404, map[string]any{"error": `policy "p": not found`})
	a.want("POST", "/plugins/p/enable", nil, 404, map[string]any{"error": `policy "p": not found`})
	a.want("DELETE", "/plugins/q", nil, 200, map[string]any{"status": "removed"})
	if files, _ := filepath.Glob(a.state + "/*/*"); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

func (a *apiFixture) testDeclared(t *testing.T) {
	parsed, err := manage.ParseFile([]byte("plugins: [{name: f, module: {bytes: " + base64.StdEncoding.EncodeToString(says("f")) + "}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Apply(t.Context(), parsed); err != nil {
		t.Fatal(err)
	}
	a.want("DELETE", "/plugins/f", nil, 409, map[string]any{"error": `policy "f": is declared in the configuration file`})
	a.want("POST", "/plugins", loadBody("f", "", says("g"), nil), 409, map[string]any{"error": `plugin "f": is declared in the configuration file`})
}

func TestAPILetsNobodyInByDefault(t *testing.T) {
	f := start(t, nil)
	empty := func() (string, error) { return "", nil }
	broken := func() (string, error) { return "x", errors.New("no file") }
	for name, test := range map[string]struct {
		auth  manage.Auth
		token string
	}{
		"nothing is configured":      {manage.Auth{}, "x"},
		"no token is sent":           {manage.Auth{Token: func() (string, error) { return "x", nil }}, ""},
		"another token is sent":      {manage.Auth{Token: func() (string, error) { return "x", nil }}, "y"},
		"the token is empty":         {manage.Auth{Token: empty}, " "},
		"the token cannot be read":   {manage.Auth{Token: broken}, "x"},
		"a name, and no certificate": {manage.Auth{ClientNames: []string{"admin"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(f.API(test.auth))
			defer server.Close()
			c := &client{t, server.URL, test.token, server.Client()}
			for _, path := range []string{"/plugins", "/plugins/p/versions"} {
				c.want("GET", path, nil, 401, map[string]any{"error": "not authorized"})
			}
			c.want("POST", "/plugins", loadBody("p", "1", says("x"), nil), 401, map[string]any{"error": "not authorized"})
		})
	}
}

func TestAPIByClientCertificate(t *testing.T) {
	f := start(t, nil)
	for name, code := range map[string]int{"admin": 200, "other": 401, "": 401} {
		r := httptest.NewRequest(http.MethodGet, "/plugins", nil)
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
		w := httptest.NewRecorder()
		f.API(manage.Auth{ClientNames: []string{"admin", ""}}).ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%q gets %d, want %d", name, w.Code, code)
		}
		r.TLS.VerifiedChains = nil
		w = httptest.NewRecorder()
		f.API(manage.Auth{ClientNames: []string{"admin"}}).ServeHTTP(w, r)
		if w.Code != 401 {
			t.Errorf("%q, not verified, gets %d", name, w.Code)
		}
	}
}

// TestCompiledFormsOfPolicies holds that a policy of the file of policies takes the compiled form
// beside its module, and that the log says why it does not.
func TestCompiledFormsOfPolicies(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
	form, err := host.Precompile(t.Context(), says("a"), host.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		form []byte
		want string
	}{
		"as granted": {form: form},
		"cut off":    {form[1:], "which compiled does not grant"},
		"absent":     {nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			f := start(t, func(cfg *manage.Config) {
				rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := rt.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
				cfg.Runtime, cfg.Logger, cfg.Interval = rt, slog.New(slog.NewTextHandler(&log, nil)), time.Hour
			})
			file := f.write(t, "a.wasm", string(says("a")))
			if test.form != nil {
				f.write(t, filepath.Base(host.CompiledFile(file, host.Platform)), string(test.form))
			}
			config := fmt.Sprintf("plugins: [{name: a, module: {file: %s, follow: true, compiled: [%x]}}]", file, sha256.Sum256(form))
			if err := f.FollowFile(t.Context(), f.write(t, "policies.yaml", config)); err != nil {
				t.Fatal(err)
			}
			if got := f.ask("Pod"); got != "a" {
				t.Errorf("message is %q", got)
			}
			if got := log.String(); strings.Contains(got, "compiled form") != (test.want != "") || !strings.Contains(got, test.want) {
				t.Errorf("the log is %s, want a warning with %q", got, test.want)
			}
		})
	}
}

// TestAFileWithMistakesOfADialectChangesNothing holds that a dialect decodes its configuration before
// a module is fetched.
func TestAFileWithMistakesOfADialectChangesNothing(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *manage.Config) { cfg.Dialects = []*dialect.Dialect{stellar.New()} })
	for config, want := range map[string]string{
		"{stellar: {fuel: 1, time: 2}}": "plugin \"p\": unknown field \"dialect.stellar.fuel\"\nunknown field \"dialect.stellar.time\"",
		"{stelar: {}}":                  "plugin \"p\": unknown field \"dialect.stelar\", did you mean \"stellar\"?",
		"{stellar: [1]}":                "plugin \"p\": dialect.stellar is a list, want a mapping",
		"{stellar: {}, rego: {}}":       "plugin \"p\": dialect has rego and stellar, want one of them",
	} {
		file, err := manage.ParseFile([]byte("plugins: [{name: p, module: {file: " + f.dir + "/none.wasm}, dialect: " + config + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Apply(t.Context(), file); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "none.wasm") {
			t.Errorf("%s: error is %v, want %s", config, err, want)
		}
	}
	var spec manage.PluginSpec
	spec.Name, spec.Dialect = "p", dialect.Config{"stellar": []byte("{}")}
	const want = "dialect.stellar is for modules of that dialect, and the module is a guest of package abi"
	if err := f.Load(t.Context(), spec, says("p")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}
