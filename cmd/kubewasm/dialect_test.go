package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// policy compiles a policy in C of package admission's tests, with Kubewarden's metadata
// unless they are empty.
func policy(t *testing.T, file, metadata string) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	from := "../../admission/kubewarden/internal/policies/testdata/" + file
	if strings.HasPrefix(file, "stellar/") {
		from = "../../admission/testdata/" + file
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(file), ".c")+".wasm")
	cmd := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", out, from)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, output)
	}
	if metadata == "" {
		return out
	}
	module, err := os.ReadFile(out)
	if err == nil {
		const name = "io.kubewarden.metadata"
		section := append(append([]byte{byte(len(name))}, name...), metadata...)
		module = append(binary.AppendUvarint(append(module, 0), uint64(len(section))), section...)
		err = os.WriteFile(out, module, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plain compiles a guest in Go without the SDK, in a mode of go build.
func plain(t *testing.T, dir, mode string) string {
	t.Helper()
	if err := guestbuild.TrackSources(dir); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "program.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode="+mode, "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return out
}

// TestInspectKnowsEveryDialect holds that a module that a component runs has no problem,
// and that one that none runs has one and a status that says so.
func TestInspectKnowsEveryDialect(t *testing.T) {
	const metadata = `{"mutating": false, "contextAwareResources": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}`
	scheduler := []string{"scheduler"}
	admission := []string{"admission"}
	tests := []struct {
		name, module string
		args         []string
		code         int
		want         examination
	}{
		{"a scheduler plugin of another project", "../../sched/testdata/peer/present.wasm", nil, 0,
			examination{ABI: "kube-scheduler-wasm-extension", Kinds: scheduler, Grants: []string{"events", "waiting-pods"}}},
		{"one of its first design", "../../sched/testdata/peer/first.wasm", nil, 0,
			examination{ABI: "kube-scheduler-wasm-extension, first design", Kinds: scheduler}},
		{"one with exports of other types", "../../sched/testdata/peer/wrong.wasm", nil, 2,
			examination{ABI: "kube-scheduler-wasm-extension", Problems: []string{
				`scheduler, as a guest of kube-scheduler-wasm-extension: export "score" is () -> i32, want () -> i64`,
				`scheduler, as a guest of kube-scheduler-wasm-extension: export "permit" is (i32) -> i64, want () -> i64`,
			}}},
		{"a policy of the Stellar operator", policy(t, "stellar/validator.c", ""), nil, 0,
			examination{ABI: "stellar", Kinds: admission}},
		{"a policy of Kubewarden that looks objects up", policy(t, "kubewarden/policy.c", metadata), nil, 0,
			examination{ABI: "kubewarden-wapc", Kinds: admission, Lookups: []string{"apps/v1/Deployment"}}},
		{"a policy of Kubewarden whose settings are wrong", policy(t, "kubewarden/policy.c", ""), []string{"--config", file(t, "c.json", `{"labels":[]}`)}, 2,
			examination{ABI: "kubewarden-wapc", Problems: []string{"admission, as a guest of kubewarden-wapc: probe: settings are not valid: labels is empty"}}},
		{"a policy of Kubewarden that is a program", plain(t, "../../admission/kubewarden/internal/policies/testdata/kubewardenwasi", "exe"), nil, 0,
			examination{ABI: "kubewarden-wasi", Kinds: admission, Fakes: []string{"clock", "random"}}},
		{"a policy in Go of Kubewarden that wants settings", plain(t, "../../admission/kubewarden/internal/policies/testdata/kubewardengo", "c-shared"), nil, 0,
			examination{ABI: "kubewarden-wapc", Kinds: admission, Fakes: []string{"clock", "random"}, Settings: "settings are not valid"}},
		{"a program that is no policy", plain(t, "testdata/program", "exe"), nil, 2,
			examination{ABI: "kubewarden-wasi", Fakes: []string{"clock", "random"}, Problems: []string{"admission, as a guest of kubewarden-wasi: probe: read the answer about settings: invalid character 'h' looking for beginning of value"}}},
		{"a policy in Rego", "../../admission/kubewarden/internal/policies/testdata/opa/prints.wasm", nil, 0, examination{ABI: "opa", Kinds: admission}},
		{"a guest of our own", "../../abi/conformance/testdata/queue.wasm", nil, 0, examination{ABI: "kubewasm_abi_v1", Kinds: scheduler}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"inspect", "-o", "json", test.module}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, stderr)
			}
			var all, got examination
			if err := json.Unmarshal([]byte(out), &all); err != nil {
				t.Fatal(err)
			}
			got.ABI, got.Grants, got.Fakes, got.Lookups, got.Settings, got.Problems = all.ABI, all.Grants, all.Fakes, all.Lookups, all.Settings, all.Problems
			if len(all.Kinds) != 0 {
				got.Kinds = all.Kinds
				if all.Memory.Started == 0 && all.Settings == "" || len(all.Functions) == 0 {
					t.Errorf("memory %d, functions %q", all.Memory.Started, all.Functions)
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(examination{})); diff != "" {
				t.Errorf("examination (-want +got):\n%s", diff)
			}
			for _, kind := range extensionKinds {
				if has := all.NotAs[kind.String()] == ""; has != (len(all.Kinds) == 1 && all.Kinds[0] == kind.String()) {
					t.Errorf("kinds %q, not as %q", all.Kinds, all.NotAs)
				}
			}
			if _, text, _ := kubewasm(t, append([]string{"inspect", test.module}, test.args...)...); test.want.ABI != "kubewasm_abi_v1" && !strings.Contains(text, "\ndialect ") {
				t.Errorf("no dialect is printed:\n%s", text)
			}
		})
	}
}

// TestRunForeign holds that modules of other ABIs are run as the components run them, with
// requests that the flags describe.
// bundleOf returns the bundle of a policy as opa build writes it.
func bundleOf(t *testing.T, module string) string {
	t.Helper()
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range []struct {
		name string
		data []byte
	}{{"/data.json", []byte("{}\n")}, {"/policy.wasm", code}, {"/.manifest", []byte(`{"wasm":[{"module":"/policy.wasm"}]}`)}} {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o600})
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRunForeign(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {mode: %s}}}`
	objects := func(mode string) string {
		return file(t, "objects.yaml", strings.ReplaceAll(pod, "%s", mode)+"\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: db, labels: {app: web}}}\n")
	}
	wapc, stellar := policy(t, "kubewarden/policy.c", ""), policy(t, "stellar/validator.c", "")
	declares := policy(t, "kubewarden/policy.c", `{"contextAwareResources": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}`)
	there := file(t, "there.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: there, namespace: shop, labels: {app: web}}}")
	settings := file(t, "settings.yaml", "labels: [team]")
	was := file(t, "was.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {was: here}}}")
	bundle := file(t, "bundle.tar.gz", bundleOf(t, "../../admission/kubewarden/internal/policies/testdata/opa/prints.wasm"))
	review := file(t, "request.json", `{"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "name": "p", "object": {"metadata": {"annotations": {"mode": "mode-echo"}}}}`)
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a scheduler plugin", []string{"-f", "testdata/cluster.yaml", "--grant", "events", "--grant", "waiting-pods", "../../sched/testdata/peer/present.wasm"}, 2,
			[]string{"shop/web n1 Unschedulable", " pk n1\n", "shop/web (PostFilter) Success ", " nominates n7\n"}},
		{"a policy in Rego", []string{"-f", objects("x"), "../../admission/kubewarden/internal/policies/testdata/opa/prints.wasm"}, 2, []string{"Pod default/web denied 403 ", "what it denies with"}},
		{"what opa build writes", []string{"-f", objects("x"), bundle}, 2, []string{"Pod default/web denied 403 ", "what it denies with"}},
		{"a Stellar policy", []string{"-f", objects("mode-silent"), stellar}, 0, []string{"Pod default/web allowed", "Deployment db allowed"}},
		{"the creation of objects", []string{"-f", objects("mode-echo"), "--config", settings, wapc}, 2,
			[]string{"Pod default/web denied 418", `"operation":"CREATE","userInfo":{"username":"kubernetes-admin",`, `"settings":{"labels":["team"]}}`}},
		{"an update by a user", []string{"-f", objects("mode-echo"), "--old", was, "--user", "alice", "--group", "dev", "--namespace", "shop", wapc}, 1,
			[]string{`Pod shop/web denied 418`, `"operation":"UPDATE","userInfo":{"username":"alice","groups":["dev","system:authenticated"]}`,
				`"oldObject":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"was":"here"},"name":"web","namespace":"shop"}}`}},
		{"an update that changes nothing", []string{"-f", objects("mode-echo"), "--operation", "update", "--dry-run", wapc}, 2, []string{`"operation":"UPDATE"`, `"oldObject":{"apiVersion"`, `"dryRun":true`}},
		{"a deletion", []string{"-f", objects("mode-echo"), "--operation", "DELETE", wapc}, 2, []string{`"operation":"DELETE"`, `"groups":["kubeadm:cluster-admins","system:authenticated"]},"oldObject":{"apiVersion"`}},
		{"a part of an object", []string{"-f", objects("mode-echo"), "--subresource", "status", "--operation", "UPDATE", wapc}, 2, []string{"Pod/status default/web denied 418", `"subResource":"status"`}},
		{"a request as other tools keep it", []string{"-f", review, "--user", "bob", wapc}, 2, []string{"Pod p denied 418", `"uid":"u-1"`, `"userInfo":{"username":"bob"`}},
		{"a lookup that is not granted", []string{"-f", objects("mode-list"), "--namespace", "shop", wapc}, 2, []string{"the policy may not see apps/v1 Deployment"}},
		{"a lookup in the file", []string{"-f", objects("mode-list"), "--namespace", "shop", "--see", "apps/v1/Deployment", wapc}, 2, []string{`"kind":"DeploymentList"`, `"items":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"db","namespace":"shop"}}]`}},
		{"a lookup in another file", []string{"-f", objects("mode-list"), "--namespace", "shop", "--objects", there, wapc}, 2, []string{`"items":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"there","namespace":"shop"}}]`}},
		{"a lookup in another file that the metadata declare", []string{"-f", objects("mode-list"), "--namespace", "shop", "--objects", there, declares}, 2, []string{`"items":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"there","namespace":"shop"}}]`}},
		{"a lookup in another file that --see leaves out", []string{"-f", objects("mode-list"), "--namespace", "shop", "--objects", there, "--see", "v1/Pod", wapc}, 2, []string{"the policy may not see apps/v1 Deployment"}},
		{"a lookup that the metadata declare", []string{"-f", objects("mode-list"), "--namespace", "shop", declares}, 2, []string{`"items":[{"apiVersion"`}},
		{"a raw request", []string{"--raw", "-f", file(t, "raw.json", `{"user": "tonio", "action": ["eats"]}`), "--config", file(t, "c.yaml", "is: mode-echo"), wapc}, 2, []string{"raw.json denied 418", `"request":{"action":["eats"],"user":"tonio"}`}},
		{"a raw request in Rego", []string{"--raw", "-f", file(t, "raw.json", `[1]`), "../../admission/kubewarden/internal/policies/testdata/opa/prints.wasm"}, 2, []string{"raw.json denied 400", "what it denies with"}},
		{"a policy that is a program", []string{"-f", objects("x"), "--config", file(t, "c.yaml", "deny: never"), plain(t, "../../admission/kubewarden/internal/policies/testdata/kubewardenwasi", "exe")}, 2, []string{"Pod default/web denied 403", `never {"apiVersion":"v1","kind":"Pod"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"run"}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, stderr)
			}
			out = strings.Join(strings.Fields(out), " ") + "\n"
			for _, want := range test.want {
				if !strings.Contains(out, strings.TrimSuffix(want, "\n")) {
					t.Errorf("not printed: %s\n%s", want, out)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an operation that there is not":    {[]string{"--operation", "PATCH", wapc}, `--operation is "PATCH", want CREATE, UPDATE, DELETE, CONNECT`},
		"an old object of a deletion":       {[]string{"--operation", "DELETE", "--old", was, wapc}, "--old is for UPDATE"},
		"an object that was not there":      {[]string{"--old", was, wapc}, "Deployment db is not in"},
		"a raw request of a user":           {[]string{"--raw", "--user", "alice", wapc}, "--user are for requests of Kubernetes, and --raw is for others"},
		"a kind without its version":        {[]string{"--see", "Namespace", wapc}, `--see: "Namespace" is no kind with its version`},
		"a request to a scheduler plugin":   {[]string{"--user", "alice", "--dry-run", "../../sched/testdata/peer/first.wasm"}, "--dry-run, --user is for admission plugins, and this is one of kind scheduler"},
		"a program that is no policy":       {[]string{plain(t, "testdata/program", "exe")}, "read the answer about settings"},
		"settings that a policy refuses":    {[]string{"--config", file(t, "c.json", `{"labels":[]}`), wapc}, "settings are not valid: labels is empty"},
		"a lookup of what may look up none": {[]string{"--see", "v1/Namespace", stellar}, "contextAwareResources are for policies of Kubewarden and in Rego"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := kubewasm(t, append([]string{"run", "-f", objects("mode-none")}, test.args...)...)
			if code != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d: %s\nwant %s", code, stderr, test.want)
			}
		})
	}
}
