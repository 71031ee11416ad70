// Package e2e runs the transports beside a containerd that runs containers. It is
// a module of its own since it builds containerd and runc.
package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// image is the name of the one image that there is, also that of sandboxes.
const image = "kubewasm.test/pause:1"

// containerd is a containerd of the test's own: binaries, directories, sockets.
type containerd struct {
	*testing.T
	// dir has all that it makes, bin its programs.
	dir, bin string
	// NRI is the socket for plugins.
	NRI     string
	process *exec.Cmd
	ended   chan error
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	// sandboxes are those that are there.
	sandboxes map[string]bool
}

// newContainerd builds containerd and runc, as go.mod pins them, and runs them
// with the image loaded.
func newContainerd(t *testing.T) *containerd {
	t.Helper()
	// The path of a socket has at most 108 bytes, which t.TempDir may use up.
	dir, err := os.MkdirTemp("", "kubewasm-")
	if err != nil {
		t.Fatal(err)
	}
	c := &containerd{T: t, dir: dir, bin: programs(t), NRI: filepath.Join(dir, "nri.sock"), sandboxes: map[string]bool{}}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c.configure()
	conn, err := grpc.NewClient("unix://"+c.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	c.RuntimeServiceClient, c.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	c.start()
	t.Cleanup(func() {
		for id := range c.sandboxes {
			c.remove(id)
		}
		c.stop(os.Interrupt)
		conn.Close()
	})
	c.load()
	return c
}

func (c *containerd) socket() string { return filepath.Join(c.dir, "containerd.sock") }

// programs builds what is run and returns the directory.
func programs(t *testing.T) (dir string) {
	t.Helper()
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, "kubewasm", "containerd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build := func(cgo string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-ldflags=-s -w", "-buildvcs=false", "-o", dir + "/"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux")
		if out, err := cmd.CombinedOutput(); err != nil {
			unable(t, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out))
		}
	}
	const module = "github.com/containerd/containerd/v2/cmd/"
	build("0", "-tags=no_btrfs,no_devmapper,no_zfs", module+"containerd", module+"containerd-shim-runc-v2", module+"ctr")
	// runc enters namespaces in C, before Go has threads.
	build("1", "github.com/opencontainers/runc")
	return dir
}

// unable ends a test for which there is no containerd: with CI set it fails.
func unable(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("no containerd for the test: %v", err)
	}
	t.Skipf("no containerd for the test: %v", err)
}

func (c *containerd) configure() {
	c.Helper()
	config := strings.NewReplacer("DIR", c.dir, "BIN", c.bin, "IMAGE", image).Replace(`
version = 3
root = "DIR/root"
state = "DIR/state"
[grpc]
address = "DIR/containerd.sock"
[ttrpc]
address = "DIR/containerd.sock.ttrpc"
[plugins.'io.containerd.nri.v1.nri']
disable = false
socket_path = "DIR/nri.sock"
plugin_path = "DIR/nri"
plugin_config_path = "DIR/nri"
[plugins.'io.containerd.shim.v1.manager']
socket_dir = "DIR/s"
[plugins.'io.containerd.internal.v1.opt']
path = "DIR/opt"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "native"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "IMAGE"
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# Whoever runs the test may not lower the score of anything.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = "DIR/cni"
bin_dirs = ["DIR/cni"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "BIN/runc"
Root = "DIR/runc"
SystemdCgroup = false
`)
	if err := os.WriteFile(filepath.Join(c.dir, "config.toml"), []byte(config), 0o644); err != nil {
		c.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "s"), 0o700); err != nil {
		c.Fatal(err)
	}
}

// start runs the process; requests wait until it serves.
func (c *containerd) start() {
	c.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	c.process = exec.Command(filepath.Join(c.bin, "containerd"), "--log-level", "warn", "--config", filepath.Join(c.dir, "config.toml"))
	c.process.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"))
	c.process.Stdout, c.process.Stderr = log, log
	if err := c.process.Start(); err != nil {
		c.Fatal(err)
	}
	c.ended = make(chan error, 1)
	go func(p *exec.Cmd, ended chan error) { ended <- p.Wait() }(c.process, c.ended)
	c.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(c.dir, "log")); err == nil && c.Failed() {
			c.Logf("containerd: %s", log)
		}
	})
}

// stop ends the process; what it runs goes on.
func (c *containerd) stop(signal os.Signal) {
	c.Helper()
	if c.process == nil {
		return
	}
	c.process.Process.Signal(signal)
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		c.process.Process.Kill()
		<-c.ended
		c.Errorf("containerd does not end on %s", signal)
	}
	c.process = nil
}

// load builds the image and loads it.
func (c *containerd) load() {
	c.Helper()
	if _, err := c.Version(c.Context(), &runtimeapi.VersionRequest{}); err != nil {
		c.Fatal(err)
	}
	file := filepath.Join(c.dir, "image.tar")
	if err := os.WriteFile(file, archive(c.T), 0o644); err != nil {
		c.Fatal(err)
	}
	cmd := exec.CommandContext(c.Context(), filepath.Join(c.bin, "ctr"), "--address", c.socket(), "--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", "native", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("%v: %s", err, out)
	}
	// The CRI learns of it a moment later.
	c.until("the image is there", func() bool {
		status, err := c.images.ImageStatus(c.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		return err == nil && status.Image != nil
	})
}

// until waits, not for ever.
func (c *containerd) until(what string, ok func() bool) {
	c.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			c.Fatalf("not in time: %s", what)
		}
	}
}

// archive returns an image of the program in testdata/pause: an OCI image layout
// (opencontainers/image-spec, image-layout.md) in a tar file.
func archive(t *testing.T) []byte {
	t.Helper()
	pause := filepath.Join(t.TempDir(), "pause")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", pause, "./testdata/pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(pause)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	layout := tar.NewWriter(&out)
	add := func(w *tar.Writer, name string, mode int64, content []byte) {
		t.Helper()
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	type object map[string]any
	encode := func(v any) []byte {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// blob adds content under its digest and describes it.
	blob := func(mediaType string, content []byte) object {
		sum := sha256.Sum256(content)
		digest := hex.EncodeToString(sum[:])
		add(layout, "blobs/sha256/"+digest, 0o644, content)
		return object{"mediaType": "application/vnd.oci.image." + mediaType, "digest": "sha256:" + digest, "size": len(content)}
	}
	var files bytes.Buffer
	root := tar.NewWriter(&files)
	add(root, "pause", 0o755, program)
	if err := root.Close(); err != nil {
		t.Fatal(err)
	}
	layer := blob("layer.v1.tar", files.Bytes())
	config := blob("config.v1+json", encode(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": []string{"/pause"}},
		"rootfs": object{"type": "layers", "diff_ids": []any{layer["digest"]}},
	}))
	manifest := blob("manifest.v1+json", encode(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layer}}))
	manifest["annotations"] = object{"io.containerd.image.name": image}
	add(layout, "index.json", 0o644, encode(object{"schemaVersion": 2, "manifests": []any{manifest}}))
	add(layout, "oci-layout", 0o644, encode(object{"imageLayoutVersion": "1.0.0"}))
	if err := layout.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sandbox makes a pod in a cgroup.
func (c *containerd) sandbox(name, cgroup string, annotations map[string]string) (id string, config *runtimeapi.PodSandboxConfig) {
	c.Helper()
	config = &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: name},
		Annotations: annotations, Labels: map[string]string{"tier": "front"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/" + cgroup,
			// The network of the node needs no plugins.
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
		},
	}
	resp, err := c.RunPodSandbox(c.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		c.Fatal(err)
	}
	c.sandboxes[resp.PodSandboxId] = true
	return resp.PodSandboxId, config
}

// remove ends a pod with its containers.
func (c *containerd) remove(sandbox string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	delete(c.sandboxes, sandbox)
	if _, err := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		c.Error(err)
	}
	if _, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		c.Error(err)
	}
}

// create makes a container of a pod, without starting it.
func (c *containerd) create(name, sandbox string, config *runtimeapi.PodSandboxConfig, resources *runtimeapi.LinuxContainerResources) (id string, err error) {
	resp, err := c.CreateContainer(c.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image},
			Labels: map[string]string{"io.kubernetes.container.name": name},
			Envs:   []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}},
			Linux:  &runtimeapi.LinuxContainerConfig{Resources: resources},
		},
	})
	return resp.GetContainerId(), err
}

// run makes a container and starts it, and returns its process as well.
func (c *containerd) run(name, sandbox string, config *runtimeapi.PodSandboxConfig, resources *runtimeapi.LinuxContainerResources) (id string, pid int) {
	c.Helper()
	id, err := c.create(name, sandbox, config, resources)
	if err != nil {
		c.Fatal(err)
	}
	if _, err := c.StartContainer(c.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		c.Fatal(err)
	}
	return id, c.info(id).Pid
}

// info is what containerd tells of a container when it is asked to be verbose.
type info struct {
	Pid         int
	RuntimeSpec struct {
		Annotations map[string]string
	}
}

func (c *containerd) info(id string) (i info) {
	c.Helper()
	status, err := c.ContainerStatus(c.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		c.Fatal(err)
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &i); err != nil || i.Pid == 0 {
		c.Fatalf("no process in %s: %v", status.Info["info"], err)
	}
	return i
}

// update asks for other resources, as the kubelet does for a resize.
func (c *containerd) update(id string, resources *runtimeapi.LinuxContainerResources) {
	c.Helper()
	if _, err := c.UpdateContainerResources(c.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources}); err != nil {
		c.Fatal(err)
	}
}
