package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// built are the programs that were built, by their names.
var built sync.Map

// program builds a program of cmd and returns its file.
func buildProgram(t *testing.T, name string) string {
	t.Helper()
	build := sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "kubewasm-chart-")
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, name)
		cmd := exec.CommandContext(context.Background(), "go", "build", "-C", "../../cmd/kubewasm-"+name, "-o", file, ".")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return file, nil
	})
	once, _ := built.LoadOrStore(name, build)
	file, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestMain(m *testing.M) {
	code := m.Run()
	built.Range(func(_, once any) bool {
		if file, err := once.(func() (string, error))(); err == nil {
			os.RemoveAll(filepath.Dir(file))
		}
		return true
	})
	os.Exit(code)
}

// flagLine matches a flag in the help of a program, in the form of package flag and of pflag.
var flagLine = regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--?[a-z0-9][a-z0-9-]*)`)

// TestFlagsExist holds that the programs have the flags that the chart gives them.
func TestFlagsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	known := map[string][]string{}
	used := 0
	for _, name := range examples(t) {
		for _, w := range install(t, name).workloads() {
			if known[w.component] == nil {
				out, err := exec.CommandContext(t.Context(), buildProgram(t, w.component), "--help").CombinedOutput()
				if err != nil {
					t.Errorf("%s --help ends with %v", w.component, err)
				}
				for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
					known[w.component] = append(known[w.component], m[1])
				}
				if len(known[w.component]) < 4 {
					t.Fatalf("the help of %s is %s", w.component, out)
				}
			}
			for _, arg := range w.container().Args {
				flag, _, _ := strings.Cut(arg, "=")
				used++
				if !slices.Contains(known[w.component], flag) {
					t.Errorf("%s: %s has no flag %s", name, w.component, flag)
				}
			}
		}
	}
	if len(known) != 5 || used < 50 {
		t.Errorf("there are %d programs and %d flags", len(known), used)
	}
}

// file returns what a mounted file of a container holds, by the ConfigMaps of the installation.
func (i *installed) file(t *testing.T, w *workload, name string) string {
	t.Helper()
	for _, m := range w.container().VolumeMounts {
		key, ok := strings.CutPrefix(name, m.MountPath+"/")
		if !ok {
			continue
		}
		for _, v := range w.template.Spec.Volumes {
			if v.Name != m.Name || v.ConfigMap == nil {
				continue
			}
			for _, c := range all[*corev1.ConfigMap](i) {
				if c.Name == v.ConfigMap.Name {
					if text, ok := c.Data[key]; ok {
						return text
					}
				}
			}
		}
	}
	t.Fatalf("%s: no ConfigMap holds %s", w.GetName(), name)
	return ""
}

// argument returns the value of a flag, empty without it.
func argument(w *workload, flag string) string {
	for _, arg := range w.container().Args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
	}
	return ""
}

// store writes a text to a file of its own.
func store(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// registries reads the file of registries, and compares its cache with the volume.
func (i *installed) registries(t *testing.T, w *workload, name string) oci.Config {
	t.Helper()
	if name == "" {
		return oci.Config{}
	}
	cfg, err := oci.ReadConfig(store(t, "registries.yaml", i.file(t, w, name)))
	if err != nil {
		t.Error(err)
	}
	if cfg.CacheBytes == 0 || len(cfg.Trust) == 0 || !strings.HasPrefix(cfg.CacheDir, "/cache/") {
		t.Errorf("registries are %+v", cfg)
	}
	return cfg
}

// TestConfigurationsAreRead holds that the programs read what the ConfigMaps hold.
func TestConfigurationsAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, name)
			for _, w := range i.workloads() {
				switch w.component {
				case "webhook":
					i.checkWebhook(t, w)
				case "scheduler":
					i.checkScheduler(t, w)
				case "agent":
					i.checkAgent(t, w)
				case "policy-server":
					i.checkPolicyServer(t, w)
				}
			}
		})
	}
}

func (i *installed) checkWebhook(t *testing.T, w *workload) {
	file, err := manage.ParseFile([]byte(i.file(t, w, argument(w, "-config"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Plugins {
		if errs := p.Module.Check("module"); len(errs) != 0 {
			t.Errorf("%s: %v", p.Name, errors.Join(errs...))
		}
		checkMounted(t, w, p.Name, p.Module.File)
		// What match has is sent, in the same words.
		for _, rule := range p.Match.Rules {
			for _, webhook := range i.webhooks() {
				if webhook.Name == "mutate.kubewasm.dev" && !p.AllowedToMutate || !strings.HasSuffix(webhook.Name, "e.kubewasm.dev") {
					continue
				}
				found := false
				for _, sent := range webhook.Rules {
					found = found || sent.String() == rule.String()
				}
				if !found {
					t.Errorf("%s does not send %s of the policy %s", webhook.Name, rule.String(), p.Name)
				}
			}
		}
	}
	if i.values["webhook"].(map[string]any)["groups"] != nil && len(file.Groups) == 0 {
		t.Error("there are no groups")
	}
	artifacts := i.registries(t, w, argument(w, "-registries"))
	for _, v := range w.template.Spec.Volumes {
		if v.Name != "cache" {
			continue
		}
		var compiled int64
		if _, err := fmt.Sscan(argument(w, "-cache-bytes"), &compiled); err != nil {
			t.Fatal(err)
		}
		if size := v.EmptyDir.SizeLimit.Value(); compiled+artifacts.CacheBytes >= size || compiled < size/2 {
			t.Errorf("the caches have up to %d and %d bytes on a volume of %d", compiled, artifacts.CacheBytes, size)
		}
	}
}

// checkMounted finds files of modules that no volume holds. Those in /plugins are in the image.
func checkMounted(t *testing.T, w *workload, plugin, file string) {
	t.Helper()
	if file != "" && !strings.HasPrefix(file, "/plugins/") && !slices.ContainsFunc(w.container().VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
		t.Errorf("%s: %s is on no volume", plugin, file)
	}
}

// checkScheduler has the scheduler read its configuration and make its plugins, with one guest as
// the module of each.
func (i *installed) checkScheduler(t *testing.T, w *workload) {
	guest, err := guestbuild.Build(t.Context(), "../../examples/sched/image-locality")
	if err != nil {
		t.Fatal(err)
	}
	var configuration map[string]any
	if err := yaml.UnmarshalStrict([]byte(i.file(t, w, argument(w, "--config"))), &configuration); err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, p := range configuration["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		args := p.(map[string]any)["args"].(map[string]any)
		module, ok := args["module"].(map[string]any)
		if !ok {
			continue // One of kube-scheduler's own.
		}
		names++
		var of host.ModuleConfig
		text, err := json.Marshal(module)
		if err == nil {
			err = json.Unmarshal(text, &of)
		}
		if err == nil {
			err = errors.Join(of.Check("module")...)
		}
		if err != nil {
			t.Errorf("module %s: %v", text, err)
		}
		file, _ := module["file"].(string)
		checkMounted(t, w, fmt.Sprint(p), file)
		args["module"] = map[string]any{"file": guest}
		delete(args, "guestConfig") // It is another module's.
		delete(args, "objects")     // This one looks none up.
	}
	if names == 0 {
		t.Error("no plugin has a module")
	}
	text, err := yaml.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	written := filepath.Join(dir, "written.yaml")
	args := []string{"--config=" + store(t, "scheduler.yaml", string(text)), "--write-config-to=" + written, "--master=http://127.0.0.1:1", "--secure-port=0", "--plugin-cache-dir=" + dir}
	if name := argument(w, "--plugin-registries"); name != "" {
		i.registries(t, w, name)
		key, err := filepath.Abs("../../host/oci/testdata/cosign/cosign.pub")
		if err != nil {
			t.Fatal(err)
		}
		registries := strings.NewReplacer("/cache/", dir+"/", "/keys/acme.pub", key).Replace(i.file(t, w, name))
		args = append(args, "--plugin-registries="+store(t, "registries.yaml", registries))
	}
	cmd := exec.CommandContext(t.Context(), buildProgram(t, "scheduler"), args...)
	out, err := cmd.CombinedOutput()
	read, errRead := os.ReadFile(written)
	if errRead != nil {
		t.Errorf("the scheduler does not read its configuration: %v\n%s", err, out)
	}
	if want := "resourceName: " + w.GetName(); !strings.Contains(string(read), want) {
		t.Errorf("the scheduler reads %s, want %s in it", read, want)
	}
}

// checkAgent has the agent read its configuration, and then ask an agent that does not run.
func (i *installed) checkAgent(t *testing.T, w *workload) {
	text := i.file(t, w, argument(w, "-config"))
	var configuration struct {
		HTTP    struct{ Address string }
		Plugins []struct {
			Name   string
			Module struct{ File string }
		}
		Registries *oci.Config
	}
	if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
		t.Fatal(err)
	}
	for _, p := range configuration.Plugins {
		checkMounted(t, w, p.Name, p.Module.File)
	}
	text = strings.Replace(text, configuration.HTTP.Address, "127.0.0.1:1", 1)
	out, err := exec.CommandContext(t.Context(), buildProgram(t, "agent"), "-config="+store(t, "agent.yaml", text), "-state=shop/web").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "state: ask the agent") {
		t.Errorf("the agent does not read its configuration: %v\n%s\n%s", err, out, text)
	}
}

func (i *installed) checkPolicyServer(t *testing.T, w *workload) {
	file, err := policyserver.ParseFile([]byte(i.file(t, w, argument(w, "-policies"))))
	if err != nil || len(file.Policies) == 0 {
		t.Errorf("the policies are %+v, error %v", file, err)
	}
	for _, webhook := range i.webhooks() {
		id, _, _ := strings.Cut(webhook.Name, ".policy-server.")
		if path := *webhook.ClientConfig.Service.Path; strings.HasPrefix(path, "/validate/") && path != "/validate/"+id {
			t.Errorf("%s asks %s", webhook.Name, path)
		}
	}
	guests, err := policyserver.ReadGuests([]byte(i.file(t, w, argument(w, "-guests-path"))))
	if err == nil {
		err = guests.Check()
	}
	if err != nil {
		t.Error(err)
	}
	// The program reads the other files itself, before it finds no policies.
	dir := t.TempDir()
	args := []string{"-policies=" + filepath.Join(dir, "none"), "-policies-download-dir=" + dir}
	for _, flag := range []string{"-sources-path", "-verification-path"} {
		if name := argument(w, flag); name != "" {
			args = append(args, flag+"="+store(t, "file", i.file(t, w, name)))
		}
	}
	out, err := exec.CommandContext(t.Context(), buildProgram(t, "policy-server"), args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "read policies") || strings.Contains(string(out), "sources") || strings.Contains(string(out), "verification configuration") {
		t.Errorf("the policy server does not read its files: %v\n%s", err, out)
	}
}

// TestBreakGlass holds that the webhook's file has webhook.breakGlass if there is one.
func TestBreakGlass(t *testing.T) {
	until := time.Date(2026, 11, 29, 18, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		values string
		want   *manage.BreakGlass
	}{
		{"webhook: {enabled: true}", nil},
		{"webhook: {enabled: true, breakGlass: {until: '2026-11-29T18:00:00Z', reason: the registry is away}}", &manage.BreakGlass{Until: until, Reason: "the registry is away"}},
	} {
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(test.values), &values); err != nil {
			t.Fatal(err)
		}
		i := installValues(t, values)
		for _, w := range i.workloads() {
			file, err := manage.ParseFile([]byte(i.file(t, w, argument(w, "-config"))))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, file.BreakGlass); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.values, diff)
			}
		}
	}
}

// TestNotes holds that the notes tell what API servers do with requests for the webhook.
func TestNotes(t *testing.T) {
	const policy = "policies: [{name: p, module: {file: /plugins/p.wasm}, match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]"
	const cluster = "policies: [], cluster: true}\ncontroller: {enabled: true"
	for _, test := range []struct{ values, want string }{
		{cluster, "The controller has API servers ask it about the policies that objects of the cluster declare."},
		{policy, "API servers ask it, and deny what they cannot ask about"},
		{policy + ", configurations: {failurePolicy: Ignore}", "API servers ask it, and let pass what they cannot ask about"},
		{policy + ", configurations: {enabled: false}", "API servers do not ask it: webhook.configurations.enabled is false."},
		{"policies: []", "API servers do not ask it: no policy has rules."},
	} {
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte("webhook: {enabled: true, "+test.values+"}"), &values); err != nil {
			t.Fatal(err)
		}
		i := installValues(t, values)
		if !strings.Contains(i.notes, test.want) {
			t.Errorf("%s: the notes have no %q:\n%s", test.values, test.want, i.notes)
		}
		if deletes := strings.Contains(i.notes, "kubectl delete"); deletes != (len(i.webhooks()) != 0) {
			t.Errorf("%s: there are %d webhooks, and the notes tell how to delete them: %t", test.values, len(i.webhooks()), deletes)
		}
	}
}

// TestValuesAreDocumented holds that docs/installing.md names each value of each program.
func TestValuesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/installing.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Values\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for name, value := range values {
		members, ok := value.(map[string]any)
		if !ok || name == "commonLabels" {
			if !strings.Contains(table, "`"+name+"`") {
				t.Errorf("docs/installing.md has no %s", name)
			}
			continue
		}
		for member := range members {
			if !strings.Contains(table, "`"+member+"`") && !strings.Contains(table, "`."+member+"`") && !strings.Contains(table, "`"+name+"."+member+"`") && !strings.Contains(table, "`"+member+".") {
				t.Errorf("docs/installing.md has no %s.%s", name, member)
			}
		}
	}
}

// TestCommandsInContainers holds that commands of docs/operating.md in an agent's container start the
// program of the image with the file of the chart.
func TestCommandsInContainers(t *testing.T) {
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^kubectl .*exec kubewasm-agent\S* -- (\S+) -config (\S+)`).FindAllStringSubmatch(string(page), -1)
	if len(commands) == 0 {
		t.Fatal("docs/operating.md has no command in an agent's container")
	}
	image, err := os.ReadFile("../../cmd/kubewasm-agent/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	w := install(t, "agent").workloads()[0]
	for _, command := range commands {
		if !strings.Contains(string(image), fmt.Sprintf("ENTRYPOINT [%q]", command[1])) || command[2] != argument(w, "-config") {
			t.Errorf("docs/operating.md has %q; the chart has -config=%s, and the Dockerfile\n%s", command[0], argument(w, "-config"), image)
		}
	}
}

// guestsOf matches the guests that a Dockerfile puts into an image.
var guestsOf = regexp.MustCompile(`for guest in ([a-z -]+); do`)

// TestImages holds that each program has a Dockerfile for two platforms with a user by its number,
// which puts the modules in /plugins that values name there.
func TestImages(t *testing.T) {
	plugin := regexp.MustCompile(`/plugins/([a-z-]+)\.wasm`)
	seen := map[string]bool{}
	for _, name := range examples(t) {
		i := install(t, name)
		for _, w := range i.workloads() {
			text, err := os.ReadFile("../../cmd/kubewasm-" + w.component + "/Dockerfile")
			if err != nil {
				t.Fatal(err)
			}
			user := "USER 65532:65532"
			if w.component == "agent" {
				user = "USER 0:0"
			}
			for _, want := range []string{user, "--platform=$BUILDPLATFORM", "TARGETARCH", "gcr.io/distroless/static:", `ENTRYPOINT ["/` + w.component + `"]`} {
				if !bytes.Contains(text, []byte(want)) {
					t.Errorf("the Dockerfile of %s has no %s", w.component, want)
				}
			}
			seen[w.component] = true
			var guests []string
			if m := guestsOf.FindSubmatch(text); m != nil {
				guests = strings.Fields(string(m[1]))
			}
			for _, c := range all[*corev1.ConfigMap](i) {
				if c.Labels["app.kubernetes.io/component"] != w.component {
					continue
				}
				for _, value := range c.Data {
					for _, m := range plugin.FindAllStringSubmatch(value, -1) {
						if !slices.Contains(guests, m[1]) {
							t.Errorf("%s: the image of %s has no %s", name, w.component, m[0])
						}
					}
				}
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("there are images of %v", seen)
	}
}
