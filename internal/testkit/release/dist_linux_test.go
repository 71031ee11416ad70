package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host/oci"
)

// few are the programs of the test: one for users and one with an image.
var few = []program{{command, "", linux}, {"kubewasm-webhook", "", linux}}

// TestPrograms holds that a release has the programs of the repository, and each the Dockerfile that it reads.
func TestPrograms(t *testing.T) {
	const repo = "../../.."
	list, err := programs(repo)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.full())
		if p.name == command {
			continue
		}
		if r, err := readRecipe(repo, p.name); err != nil || r.user == "" {
			t.Errorf("%s: %+v, %v", p.name, r, err)
		}
	}
	for _, want := range []string{"kubewasm", "kubewasm-agent", "kubewasm-policy-server", "kubewasm-webhook", "kubewasm-scheduler-1.35", "kubewasm-scheduler-1.37"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %q", want, names)
		}
	}
	guests, err := guestsOf(repo, list)
	if err != nil || len(guests) < 17 || !slices.Contains(guests, "examples/sched/zone") {
		t.Errorf("guests are %q: %v", guests, err)
	}
}

// TestChoose holds that a snapshot has the programs that were asked for, the command among them, once each.
func TestChoose(t *testing.T) {
	list, err := programs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ names, want, err string }{
		{"kubewasm-webhook", "kubewasm kubewasm-webhook", ""},
		{"kubewasm-scheduler-1.37,kubewasm", "kubewasm kubewasm-scheduler-1.37", ""},
		{"kubewasm-webhook,none", "", `there are no programs ["none"]`},
	} {
		chosen, err := choose(list, strings.Split(test.names, ","))
		var got []string
		for _, p := range chosen {
			got = append(got, p.full())
			if !slices.Equal(p.platforms, linux) {
				t.Errorf("%s: %s is for %v", test.names, p.full(), p.platforms)
			}
		}
		if strings.Join(got, " ") != test.want || fmt.Sprint(err) != cmp.Or(test.err, "<nil>") {
			t.Errorf("%s: got %q, %v", test.names, got, err)
		}
	}
}

// TestTarget holds that make release-snapshot makes all programs, unless it is given some.
func TestTarget(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"KEY=", ". v0.1.0 /tmp/release"},
		{"PROGRAMS=kubewasm-agent,kubewasm-webhook", ". -programs kubewasm-agent,kubewasm-webhook v0.1.0 /tmp/release"},
		{"KEY=/tmp/key", ". -key /tmp/key v0.1.0 /tmp/release"},
	} {
		out, err := runIn(t.Context(), "../../..", []string{"MAKEFLAGS="}, "make", "--no-print-directory", "-n", "release-snapshot", "VERSION=v0.1.0", "DIR=/tmp/release", test.given)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(string(out)), " "); !strings.HasSuffix(got, " "+test.want) {
			t.Errorf("%s: it runs %q, want %q", test.given, got, test.want)
		}
	}
}

// TestMakeDistFails holds that a program that cannot be built is told of, and that nothing is left behind.
func TestMakeDistFails(t *testing.T) {
	repo, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgSign=false", "commit", "--quiet", "--allow-empty", "-m", "a"}} {
		if _, err := run(t.Context(), repo, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	m, err := makeDist(t.Context(), repo, "v0.1.0", []program{{command, "", linux}}, nil)
	if m != nil || err == nil || !strings.Contains(err.Error(), "build kubewasm for linux/") {
		t.Errorf("got %v, %v", m, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// distOf prepares a release of the commit that is checked out, and makes the files of a few programs.
func distOf(t *testing.T, version string) *maker {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "release")
	_, err := prepare(t.Context(), "../../..", version, dir)
	if errors.Is(err, errDirty) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	guests, err := guestsOf(dir, few)
	if err != nil {
		t.Fatal(err)
	}
	m, err := makeDist(t.Context(), dir, version, few, guests)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tree returns the files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		relative, _ := filepath.Rel(dir, name)
		files[relative] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDist makes the files of a release twice and uses them as a stranger does.
func TestDist(t *testing.T) {
	if os.Getenv("KUBEWASM_RELEASE") == "" {
		t.Skip("it builds programs for two architectures: set KUBEWASM_RELEASE=1")
	}
	const version = "v0.1.0"
	m := distOf(t, version)
	files := tree(t, m.out)

	t.Run("twice is the same", func(t *testing.T) {
		before := syscall.Umask(0o077)
		defer syscall.Umask(before)
		again := tree(t, distOf(t, version).out)
		for name, data := range files {
			if again[name] != data {
				t.Errorf("%s differs", name)
			}
		}
		if len(again) != len(files) {
			t.Errorf("there are %d files, and %d the second time", len(files), len(again))
		}
	})

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.sign(t.Context(), key); err != nil {
		t.Fatal(err)
	}

	use(t, m, few)
	t.Run("manifests of package managers", func(t *testing.T) { manifestsFit(t, m, files) })
	t.Run("packages of languages", func(t *testing.T) { packagesOfLanguages(t, m) })
	t.Run("the commit of a tag", func(t *testing.T) { tagIsChecked(t, m) })
}

// TestSnapshot uses a whole snapshot, which make release-snapshot has made.
func TestSnapshot(t *testing.T) {
	dir := os.Getenv("KUBEWASM_SNAPSHOT")
	if dir == "" {
		t.Skip("set KUBEWASM_SNAPSHOT to the directory of a snapshot")
	}
	list, err := programs(dir)
	if err != nil {
		t.Fatal(err)
	}
	head, err := run(t.Context(), dir, "git", "describe", "--tags", "--exact-match", "--match", "v*", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	commit, err := run(t.Context(), dir, "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{repo: dir, out: filepath.Join(dir, "dist"), version: strings.TrimSpace(string(head)), commit: strings.TrimSpace(string(commit)), digests: map[string]string{}}
	images, err := os.ReadFile(filepath.Join(m.out, "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	m.images = strings.Fields(string(images))
	for _, line := range m.images {
		if _, digest, ok := strings.Cut(line, registry+"webhook:"+m.version+"@"); ok {
			m.digests["kubewasm.dev/digest.webhook"] = digest
		}
	}
	use(t, m, list)
}

// use uses the files of a release with some programs as a stranger does.
func use(t *testing.T, m *maker, list []program) {
	t.Run("programs of the archives run", func(t *testing.T) { archivesRun(t, m, list) })
	for _, p := range list[1:] {
		t.Run("the image of "+p.full(), func(t *testing.T) { imageRuns(t, m, p) })
	}
	t.Run("documents of SPDX", func(t *testing.T) { documents(t, m, list) })
	t.Run("the chart", func(t *testing.T) { chartRenders(t, m) })
	t.Run("signatures", func(t *testing.T) { signatures(t, m) })
	t.Run("commands of the documents", func(t *testing.T) { commandsWork(t, m) })
}

// emulators are the programs that run those of an architecture on another.
var emulators = map[string]string{"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}

// start runs a program of an architecture and returns its output.
func start(ctx context.Context, t *testing.T, arch, file string, args ...string) string {
	t.Helper()
	words := append([]string{file}, args...)
	if arch != runtime.GOARCH {
		emulator := emulators[arch]
		if _, err := exec.LookPath(emulator); err != nil {
			t.Logf("%s does not run here: %v", file, err)
			return ""
		}
		words = append([]string{emulator}, words...)
	}
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v: %s", words, err, out)
	}
	return string(out)
}

// unpack writes a tar.gz into a directory.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// archivesRun holds that the program of each archive prints its version, in which the library has a sum: kubewasm
// new writes it into go.mod.
func archivesRun(t *testing.T, m *maker, list []program) {
	for _, p := range list {
		for _, on := range p.platforms {
			if on.os != "linux" {
				continue
			}
			dir := t.TempDir()
			packed, err := os.ReadFile(filepath.Join(m.out, m.archiveName(p, on)+".tar.gz"))
			if err != nil {
				t.Fatal(err)
			}
			unpack(t, packed, dir)
			file := filepath.Join(dir, p.name)
			want := m.version
			if p.minor != "" {
				want = "Kubernetes v" + p.minor + "."
			}
			if got := start(t.Context(), t, on.arch, file, "--version"); got != "" && !strings.Contains(got, want) {
				t.Errorf("%s for %s: the version is %q, want %s", p.full(), on.arch, got, want)
			}
			info, err := buildinfo.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == root })
			if i < 0 || info.Deps[i].Version != m.version || (info.Deps[i].Sum == "") == isReleased("cmd/"+p.name) {
				t.Errorf("%s for %s: the library is not that of the version: %v", p.full(), on.arch, info.Deps)
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			if info.Main.Version != m.version || settings["vcs.revision"] != m.commit || settings["vcs.modified"] != "false" {
				t.Errorf("%s for %s: the build is %v", p.full(), on.arch, info)
			}
		}
	}
}

// imageRuns holds that the image of a program has the user and the entry point of the Dockerfile, and that the program
// starts in it: as that user, with a root file system that it cannot write, of which /tmp is a volume.
func imageRuns(t *testing.T, m *maker, p program) {
	l, err := m.openLayout(p.repository())
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRecipe(m.repo, p.name)
	if err != nil {
		t.Fatal(err)
	}
	read := func(desc ocispec.Descriptor, to any) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(l.dir, "blobs/sha256", desc.Digest.Encoded()))
		if err != nil {
			t.Fatal(err)
		}
		if desc.Digest.Validate() != nil || desc.Digest.Algorithm().FromBytes(data) != desc.Digest || int64(len(data)) != desc.Size {
			t.Fatalf("%s has other bytes", desc.Digest)
		}
		if to != nil {
			if err := json.Unmarshal(data, to); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	at := slices.IndexFunc(l.index.Manifests, func(d ocispec.Descriptor) bool {
		return d.Annotations[ocispec.AnnotationRefName] == p.tag(m.version)
	})
	if at < 0 {
		t.Fatalf("there is no %s in %v", p.tag(m.version), l.index.Manifests)
	}
	var index ocispec.Index
	read(l.index.Manifests[at], &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("the index has %v", index.Manifests)
	}
	for _, desc := range index.Manifests {
		arch := desc.Platform.Architecture
		var manifest ocispec.Manifest
		var config ocispec.Image
		read(desc, &manifest)
		read(manifest.Config, &config)
		if config.Architecture != arch || config.Config.User != r.user || config.Config.Labels[ocispec.AnnotationVersion] != m.version {
			t.Errorf("the configuration is %+v", config)
		}
		root := t.TempDir()
		for _, layer := range manifest.Layers {
			unpack(t, read(layer, nil), root)
		}
		version, want := "-version", m.version
		if p.minor != "" {
			version, want = "--version", "Kubernetes v"+p.minor+"."
		}
		if got := startIn(t, config, root, version); got != "" && !strings.Contains(got, want) {
			t.Errorf("the version is %q, want %s", got, want)
		}
		if args := checks(t, p, root); args != nil {
			startIn(t, config, root, args...)
		}
	}
}

// checks writes a configuration into /tmp of the root file system of an image and returns the arguments with which the
// program checks it and its plugins, nil if it cannot without a cluster.
func checks(t *testing.T, p program, root string) []string {
	t.Helper()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, "tmp", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	switch p.name {
	case "kubewasm-webhook":
		write("policies.yaml", "plugins:\n- name: labels\n  module: {file: /plugins/required-labels.wasm}\n  guestConfig: {labels: [owner]}\n")
		if _, err := run(t.Context(), filepath.Join(root, "tmp"), "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
			"-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "tls.key", "-out", "tls.crt"); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, "tmp/tls.key"), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"-check", "-config", "/tmp/policies.yaml", "-cert", "/tmp/tls.crt", "-key", "/tmp/tls.key"}
	case "kubewasm-policy-server":
		module, err := os.ReadFile("../../../admission/kubewarden/internal/policies/testdata/verdict/wapc.wasm")
		if err != nil {
			t.Fatal(err)
		}
		const verdict = `{"accepted":true}`
		write("allow.wasm", string(bytes.Replace(module, bytes.Repeat([]byte("@"), 600), []byte(verdict+strings.Repeat(" ", 600-len(verdict))), 1)))
		write("policies.yml", `allow: {module: "file:///tmp/allow.wasm", settings: {}}`)
		return []string{"-check", "-policies", "/tmp/policies.yml", "-policies-download-dir", "/tmp/store"}
	case "kubewasm-scheduler":
		write("config.yaml", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: default-scheduler\n"+
			"  plugins: {multiPoint: {enabled: [{name: zone}]}}\n  pluginConfig:\n  - {name: zone, args: {module: {file: /plugins/zone.wasm}, guestConfig: {defaultZones: [a]}}}\n")
		return []string{"--check-plugins", "--config", "/tmp/config.yaml", "--plugin-cache-dir", "/tmp/cache"}
	case "kubewasm-agent":
		for _, cgroup := range []string{"", "burstable/", "besteffort/", "besteffort/pode/", "besteffort/pode/ec/"} {
			for _, file := range []string{"cpu.weight", "cpu.max", "cpu.bvt_warp_ns", "cpuset.cpus", "memory.max"} {
				write("cgroup/kubepods/"+cgroup+file, "0\n")
			}
		}
		write("cgroup/cgroup.controllers", "cpu cpuset memory\n")
		write("pods.yaml", "kind: PodList\nitems:\n- metadata: {namespace: shop, name: e, uid: e}\n  spec: {containers: [{name: c}]}\n"+
			"  status: {qosClass: BestEffort, containerStatuses: [{name: c, containerID: 'containerd://ec', state: {running: {}}}]}\n")
		write("agent.yaml", "cacheDir: /tmp/cache\ncgroup: {root: /tmp/cgroup, driver: cgroupfs}\nstandalone: {file: /tmp/pods.yaml}\nplugins:\n"+
			"- {name: identity, module: {file: /plugins/group-identity.wasm}, levels: [QOS]}\n")
		return []string{"-check", "-config", "/tmp/agent.yaml"}
	}
	return nil
}

// startIn starts the program of an image in its root file system and returns its output.
func startIn(t *testing.T, image ocispec.Image, root string, args ...string) string {
	t.Helper()
	words := append(image.Config.Entrypoint, args...)
	if os.Getuid() != 0 {
		t.Logf("%q does not run here: only root may change the root file system", words)
		return ""
	}
	emulator := ""
	if image.Architecture != runtime.GOARCH {
		var err error
		if emulator, err = exec.LookPath(emulators[image.Architecture]); err != nil {
			t.Logf("%q does not run here: %v", words, err)
			return ""
		}
		if err := os.WriteFile(filepath.Join(root, "emulator"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		words = append([]string{"/emulator"}, words...)
	}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.MkdirAll(filepath.Join(root, "dev"), 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o777),
	); err != nil {
		t.Fatal(err)
	}
	script := `root=$1 user=$2 emulator=$3
shift 3
mount --bind "$root" "$root"
mount --bind "$root/tmp" "$root/tmp"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
[ -z "$emulator" ] || mount --bind "$emulator" "$root/emulator"
mount -o remount,bind,ro "$root"
exec env -i ` + strings.Join(image.Config.Env, " ") + ` chroot --userspec "$user" "$root" "$@"`
	args = append([]string{"--mount", "--", "sh", "-euc", script, "sh", root, image.Config.User, emulator}, words...)
	out, err := exec.CommandContext(t.Context(), "unshare", args...).CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v: %s", words, err, out)
	}
	t.Logf("%q: %s", words, out)
	return string(out)
}

// documents holds that SPDX documents have the members that the schema of SPDX 2.3 requires, and that each module has an identifier.
func documents(t *testing.T, m *maker, list []program) {
	id := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	want := 0
	for _, p := range list {
		want += len(p.platforms)
	}
	names, err := filepath.Glob(filepath.Join(m.out, "*.spdx.json"))
	if err != nil || len(names) != want {
		t.Errorf("there are %d documents, want %d: %v", len(names), want, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		needs := func(of any, members ...string) map[string]any {
			object, _ := of.(map[string]any)
			for _, member := range members {
				if value := object[member]; value == nil || value == "" {
					t.Errorf("%s: %s is missing in %v", name, member, object)
				}
			}
			return object
		}
		needs(doc, "SPDXID", "creationInfo", "dataLicense", "name", "spdxVersion", "documentNamespace")
		needs(doc["creationInfo"], "created", "creators")
		ids := map[any]bool{doc["SPDXID"]: true}
		packages, _ := doc["packages"].([]any)
		for _, p := range packages {
			of := needs(p, "SPDXID", "name", "downloadLocation", "versionInfo")["SPDXID"]
			if text, _ := of.(string); !id.MatchString(text) || ids[of] {
				t.Errorf("%s: the identifier %v is malformed or there twice", name, of)
			}
			ids[of] = true
		}
		if len(packages) < 20 {
			t.Errorf("%s: there are %d packages", name, len(packages))
		}
		relationships, _ := doc["relationships"].([]any)
		for _, r := range relationships {
			of := needs(r, "spdxElementId", "relatedSpdxElement", "relationshipType")
			if !ids[of["spdxElementId"]] || !ids[of["relatedSpdxElement"]] {
				t.Errorf("%s: %v relates what is not there", name, of)
			}
		}
	}
}

// chartRenders holds that the packed chart names the image of the layout by its digest.
func chartRenders(t *testing.T, m *maker) {
	c, err := loader.LoadFile(filepath.Join(m.out, "kubewasm-"+m.number()+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	digest := m.digests["kubewasm.dev/digest.webhook"]
	for _, test := range []struct {
		name  string
		image map[string]any
		want  string
	}{
		{"as released", nil, registry + "webhook:" + m.version + "@" + digest},
		{"with a tag", map[string]any{"tag": "mine"}, registry + "webhook:mine"},
		{"with a digest", map[string]any{"digest": "sha256:" + strings.Repeat("0", 64)}, registry + "webhook@sha256:" + strings.Repeat("0", 64)},
		{"from a mirror", map[string]any{"repository": "registry.example.com/webhook"}, "registry.example.com/webhook:" + m.version + "@" + digest},
	} {
		values := map[string]any{
			"webhook":      map[string]any{"enabled": true, "image": test.image},
			"certificates": map[string]any{"mode": "CertManager"},
		}
		if test.image == nil {
			values["webhook"] = map[string]any{"enabled": true}
		}
		options := common.ReleaseOptions{Name: "kubewasm", Namespace: "kubewasm", IsInstall: true}
		rendered, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		out, err := engine.Render(c, rendered)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(slices.Collect(maps.Values(out)), "\n"); !strings.Contains(text, "image: "+test.want+"\n") {
			t.Errorf("%s: no image is %s:\n%s", test.name, test.want, regexp.MustCompile(`(?m)^ *image: .*$`).FindAllString(text, -1))
		}
	}
	ref, err := m.inLayout(registry + "webhook:" + m.version + "@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resolve(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// signatures holds that all that images.txt lists is signed, that copies are, and that a changed byte is refused.
func signatures(t *testing.T, m *maker) {
	client, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	trust := oci.Trust{Repositories: []string{"*"}, AllOf: []oci.Signer{{KeyFile: filepath.Join(m.out, publicKey)}}}
	if len(m.images) < 6 {
		t.Errorf("there are %q", m.images)
	}
	for _, line := range m.images {
		ref, err := m.inLayout(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, by, err := client.Verify(t.Context(), ref, trust); err != nil || len(by) != 1 {
			t.Errorf("%s: signed by %q: %v", line, by, err)
		}
		// As the workflow pushes it.
		to := oci.Reference{Layout: filepath.Join(t.TempDir(), "copy"), Tag: "copied"}
		if _, err := client.Copy(t.Context(), ref, to); err != nil {
			t.Error(err)
		}
		if digest, by, err := client.Verify(t.Context(), to, trust); err != nil || digest != ref.Digest || len(by) != 1 {
			t.Errorf("a copy of %s: %s, signed by %q: %v", line, digest, by, err)
		}
	}
	ref, err := m.inLayout(m.images[0])
	if err != nil {
		t.Fatal(err)
	}
	_, encoded, _ := strings.Cut(ref.Digest, ":")
	name := filepath.Join(ref.Layout, "blobs/sha256", encoded)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(data)
	changed[len(changed)/2] ^= 1
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Verify(t.Context(), ref, trust); err == nil {
		t.Error("a changed manifest is verified")
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// block returns the first block of code after a heading of a document.
func block(t *testing.T, text, heading string) string {
	t.Helper()
	_, after, ok := strings.Cut(text, "\n"+heading+"\n")
	_, after, begins := strings.Cut(after, "\n```\n")
	code, _, ends := strings.Cut(after, "\n```\n")
	if !ok || !begins || !ends {
		t.Fatalf("there is no block below %s", heading)
	}
	return code
}

// commandsWork runs what docs/release.md and INSTALL.md have users of a snapshot paste, with another byte in the
// end.
func commandsWork(t *testing.T, m *maker) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the document names the archive of amd64")
	}
	document, err := os.ReadFile("../../../docs/release.md")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := os.ReadFile(filepath.Join(m.out, "INSTALL.md"))
	if err != nil {
		t.Fatal(err)
	}
	paste := func(script string) ([]byte, error) {
		for _, tool := range []string{"sha256sum", "openssl"} {
			if _, err := exec.LookPath(tool); err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = m.out
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		return cmd.CombinedOutput()
	}
	verify := block(t, string(document), "## Verify a snapshot")
	for _, script := range []string{verify, block(t, string(notes), "A snapshot is signed by the key of `snapshot.pub`:")} {
		if out, err := paste(script); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	_, encoded, _ := strings.Cut(m.images[0], "@sha256:")
	repository, _, _ := strings.Cut(strings.TrimPrefix(m.images[0], registry), ":")
	for _, name := range []string{sums, "INSTALL.md", "oci/" + repository + "/blobs/sha256/" + encoded} {
		file := filepath.Join(m.out, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(slices.Clone(data), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := paste(verify); err == nil {
			t.Errorf("a change of %s is not found: %s", name, out)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// manifestsFit holds that the manifests of Krew and Homebrew name the archives with their digests.
func manifestsFit(t *testing.T, m *maker, files map[string]string) {
	var plugin struct {
		Spec struct {
			Version   string `json:"version"`
			Platforms []struct {
				Selector struct {
					MatchLabels map[string]string `json:"matchLabels"`
				} `json:"selector"`
				URI    string `json:"uri"`
				SHA256 string `json:"sha256"`
				Bin    string `json:"bin"`
			} `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(files["krew.yaml"]), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Spec.Version != m.version || len(plugin.Spec.Platforms) != 2 {
		t.Errorf("the manifest is %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		name := p.URI[strings.LastIndexByte(p.URI, '/')+1:]
		want := m.archiveName(few[0], platform{p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]}) + ".tar.gz"
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(files[name]))); name != want || p.SHA256 != sum || p.Bin != command {
			t.Errorf("the manifest has %+v, want %s with %s", p, want, sum)
		}
		if formula := files["kubewasm.rb"]; !strings.Contains(formula, `url "`+p.URI+"\"\n      sha256 \""+p.SHA256+`"`) {
			t.Errorf("the formula does not have %+v:\n%s", p, formula)
		}
		if !strings.Contains(files[sums], p.SHA256+"  "+name+"\n") {
			t.Errorf("%s does not have %s", sums, name)
		}
	}
}

// packagesOfLanguages holds that the package has the files that npm would pack, and that cargo takes the crate.
func packagesOfLanguages(t *testing.T, m *maker) {
	has := func(file string) (names []string, dir string) {
		dir = t.TempDir()
		data, err := os.ReadFile(filepath.Join(m.out, file))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(z); ; {
			header, err := r.Next()
			if err != nil {
				break
			}
			names = append(names, header.Name)
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(header.Name)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		unpack(t, data, dir)
		slices.Sort(names)
		return names, dir
	}
	try := func(dir, tool string, args ...string) []byte {
		t.Helper()
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
		out, err := run(t.Context(), dir, tool, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	names, dir := has("kubewasm-npm-" + m.number() + ".tgz")
	out := try(filepath.Join(dir, "package"), "npm", "pack", "--dry-run", "--offline", "--ignore-scripts", "--json")
	var packed []struct {
		Version string `json:"version"`
		Files   []struct {
			Path string `json:"path"`
		} `json:"files"`
	}
	if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
		t.Fatalf("npm prints %s: %v", out, err)
	}
	var want []string
	for _, f := range packed[0].Files {
		want = append(want, "package/"+f.Path)
	}
	slices.Sort(want)
	if !slices.Equal(names, want) || packed[0].Version != m.number() {
		t.Errorf("the package %s has %q, npm packs %q", packed[0].Version, names, want)
	}
	// npm packs the same files in the repository.
	out = try(filepath.Join(m.repo, "guest/assemblyscript"), "npm", "pack", "--dry-run", "--offline", "--ignore-scripts", "--json")
	if err := json.Unmarshal(out, &packed); err != nil || len(packed[0].Files)+1 != len(names) { // And LICENSE.
		t.Errorf("npm packs %d files of the repository, the package has %d: %v", len(packed[0].Files), len(names), err)
	}
	_, dir = has("kubewasm-" + m.number() + ".crate")
	crate := filepath.Join(dir, "kubewasm-"+m.number())
	try(crate, "cargo", "check", "--offline", "--quiet", "--target-dir", filepath.Join(dir, "target"))
	if out := try(crate, "cargo", "pkgid", "--offline"); !strings.HasSuffix(strings.TrimSpace(string(out)), m.number()) {
		t.Errorf("cargo calls the crate %s", out)
	}
}

// tagIsChecked holds that the workflow of a tag takes a commit that prepare made, and refuses another; and that each
// scheduler, which nobody can install by its version, has all modules there.
func tagIsChecked(t *testing.T, m *maker) {
	scheduler := filepath.Join(m.repo, "cmd/kubewasm-scheduler")
	files, err := filepath.Glob(filepath.Join(scheduler, "go*.mod"))
	if err != nil || len(files) < 3 {
		t.Fatalf("module files are %q: %v", files, err)
	}
	for _, file := range files {
		if _, err := runIn(t.Context(), scheduler, []string{"GOFLAGS=", "GOWORK=off"}, "go", "list", "-modfile="+filepath.Base(file), "-deps", "."); err != nil {
			t.Error(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "clone")
	if _, err := run(t.Context(), m.repo, "git", "clone", "--quiet", "--no-tags", ".", dir); err != nil {
		t.Fatal(err)
	}
	tags, err := tagged(t.Context(), dir, m.version)
	if err != nil || len(tags) < 10 {
		t.Errorf("tags are %q: %v", tags, err)
	}
	if _, err := tagged(t.Context(), dir, "v0.2.0"); err == nil || !strings.Contains(err.Error(), "requires "+root+" "+m.version+", want v0.2.0") {
		t.Errorf("another version: %v", err)
	}
	if _, err := run(t.Context(), dir, "git", "checkout", "--quiet", "HEAD~1"); err != nil {
		t.Fatal(err)
	}
	if _, err := tagged(t.Context(), dir, m.version); err == nil || !strings.Contains(err.Error(), "replaces "+root) {
		t.Errorf("the commit before: %v", err)
	}
}
