package hooks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// hostRoot makes the root of a node, with links that lead where they should not.
func hostRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"var/lib/models/llama", "var/lib/models/deep/er", "var/lib/secrets", "run/containerd", "proc/1", "dev/dri"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"var/lib/models/out": "/", "var/lib/models/secrets": "../secrets", "var/lib/models/up": "../../../../../../..", "var/lib/models/again": "/var/lib/models/llama",
		"var/lib/models/long": "deep/../../models/./deep/er", "var/lib/models/loop": "loop", "var/lib/models/nowhere": "gone", "var/lib/models/disk": "/dev/sda",
		"proc/1/root": "/", "dev/nvidia-link": "sda",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"dev/nvidia-file", "dev/sda"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mkfifo", filepath.Join(root, "dev/nvidia-fifo")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

// modest are grants as an operator gives them.
func modest() hooks.Grants {
	return hooks.Grants{
		Env:         []string{"NVIDIA_*", "L*", "GOGC", "P*"},
		Annotations: []string{"example.com/*", "io.kubernetes.cri-o.userns-mode"},
		CDI:         []string{"nvidia.com/gpu=*", "vendor.com/nic=0"},
		Mounts: []hooks.MountGrant{
			{Source: "/var/lib/models/**", Destination: "/models/**"},
			{Source: "/var/lib/models/llama", Destination: "/scratch", ReadWrite: true, Options: []string{"rslave"}},
			{Source: "/proc/1/root", Destination: "/host"},
			{Type: "tmpfs", Destination: "/cache/*", ReadWrite: true},
		},
		Devices: []string{"/dev/nvidia*", "/dev/sd*", "/dev/dri/*"},
	}
}

// Whatever a guest decides, a container gets nothing that its operator did not name.
func TestDecideRefusesWhatIsNotGranted(t *testing.T) {
	none, some, here := plugin(t, "none", scripted), plugin(t, "some", scripted), plugin(t, "p", scripted)
	none.DecisionGrants, some.DecisionGrants = hooks.Grants{}, modest()
	here.DecisionGrants = hooks.Grants{Devices: []string{"/dev/nul*", "/dev/ze*", "/dev/tty", "/dev/f*"}}
	root := hostRoot(t)
	e := engine(t, hooks.Config{HostRoot: root, Plugins: []hooks.PluginConfig{none, some}})
	node := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{here}})
	for _, c := range []struct {
		name string
		// What the plugin without grants, the one with some, and the one on the real
		// node decide.
		none, some, here string
		want             string
	}{
		// Nothing is granted by default.
		{name: "a variable", none: "env A 1", want: `container_envs[A] = "1" is not granted: env does not name it; decisionGrants {"env":["A"]} would allow it`},
		{name: "an annotation", none: "annotation example.com/a 1", want: `container_annotations[example.com/a] = "1" is not granted: annotations does not name it; decisionGrants {"annotations":["example.com/a"]} would allow it`},
		{name: "the host's root", none: "mount /host /proc/1/root rbind,rw", want: `container_mounts[/host] = bind "/proc/1/root" (rbind,rw) is not granted: mounts does not name the source and the destination; decisionGrants {"mounts":[{"source":"/proc/1/root","destination":"/host","readWrite":true}]} would allow it`},
		{name: "a disk", none: "device /dev/sda b 8:0", want: `container_devices[/dev/sda] = b 8:0 is not granted: devices does not name it; decisionGrants {"devices":["/dev/sda"]} would allow it`},
		{name: "a CDI device", none: "annotation cdi.k8s.io/x nvidia.com/gpu=all", want: `decisionGrants {"cdi":["nvidia.com/gpu=all"]} would allow it`},
		{name: "all that is refused is said", none: "env A 1\nenv B 2\nmount /a /b", want: "container_envs[A] = \"1\" is not granted: env does not name it; decisionGrants {\"env\":[\"A\"]} would allow it\ncontainer_envs[B]"},

		{name: "a variable of the loader within a pattern", some: "env LD_PRELOAD /models/x.so", want: "it decides what a process runs, trusts or talks to, so env has to name it itself"},
		{name: "the search path within a pattern", some: "env PATH /models", want: "it decides what a process runs, trusts or talks to"},
		{name: "the interpreter's start within a pattern", some: "env PYTHONSTARTUP /models/x", want: "it decides what a process runs, trusts or talks to"},
		{name: "the beginning of a pattern alone", some: "env NVIDIA 1", want: "env does not name it"},
		{name: "a name that goes on", some: "env GOGCX 1", want: "env does not name it"},
		{name: "a name in other letters", some: "env nvidia_x 1", want: "env does not name it"},

		{name: "another domain", some: "annotation example.com.evil/a 1", want: "annotations does not name it"},
		{name: "a subdomain", some: "annotation x.example.com/a 1", want: "annotations does not name it"},
		{name: "seccomp", some: "annotation seccomp-profile.kubernetes.cri-o.io/nginx unconfined", want: "a runtime may act upon it"},
		{name: "AppArmor", some: "annotation container.apparmor.security.beta.kubernetes.io/nginx unconfined", want: "a runtime may act upon it"},
		{name: "a property of the systemd unit", some: "annotation org.systemd.property.CollectMode 'inactive'", want: "a runtime may act upon it"},
		{name: "the handler of crun", some: "annotation run.oci.handler krun", want: "a runtime may act upon it"},
		{name: "a flag of gVisor", some: "annotation dev.gvisor.flag.debug true", want: "a runtime may act upon it"},
		{name: "the parent of CRI-O's", some: "annotation io.kubernetes.cri-o.CgroupParent system.slice", want: "a runtime may act upon it"},
		{name: "a plugin of NRI", some: "annotation devices.nri.io/container.nginx x", want: "a runtime may act upon it"},
		{name: "a balloon", some: "annotation prefer-closest-hint.resource-policy.nri.io/x y", want: "a runtime may act upon it"},

		{name: "a CDI device of another kind", some: "annotation cdi.k8s.io/x vendor.com/disk=0", want: `cdi does not name vendor.com/disk=0; decisionGrants {"cdi":["vendor.com/disk=0"]} would allow it`},
		{name: "one CDI device too many", some: "annotation cdi.k8s.io/x nvidia.com/gpu=0,vendor.com/nic=1", want: "cdi does not name vendor.com/nic=1"},
		{name: "a CDI pattern", some: "annotation cdi.k8s.io/x nvidia.com/gpu=*", want: `"nvidia.com/gpu=*" is not the name of a CDI device`},
		{name: "no CDI device", some: "annotation cdi.k8s.io/x ,", want: `"" is not the name of a CDI device`},
		{name: "a CDI key without a name", some: "annotation cdi.k8s.io/ nvidia.com/gpu=0", want: "it is no key of CDI"},

		{name: "a source beside the granted one", some: "mount /models/a /var/lib/modelsx/a", want: "mounts does not name the source and the destination"},
		{name: "the granted directory itself", some: "mount /models/a /var/lib/models", want: "mounts does not name the source and the destination"},
		{name: "a destination beside the granted one", some: "mount /etc/ld.so.preload /var/lib/models/llama", want: "mounts does not name the source and the destination"},
		{name: "the source of one grant at the destination of another", some: "mount /scratch /var/lib/models/deep", want: "mounts does not name the source and the destination"},
		{name: "a link to the root", some: "mount /models/a /var/lib/models/out", want: `the source leads to "/", which the grant does not have`},
		{name: "a link on the way", some: "mount /models/a /var/lib/models/out/run/containerd", want: `the source leads to "/run/containerd"`},
		{name: "a link to a neighbour", some: "mount /models/a /var/lib/models/secrets", want: `the source leads to "/var/lib/secrets"`},
		{name: "a link above the root", some: "mount /models/a /var/lib/models/up/run", want: `the source leads to "/run"`},
		{name: "a link to a disk", some: "mount /models/a /var/lib/models/disk", want: `the source leads to "/dev/sda"`},
		{name: "a link to itself", some: "mount /models/a /var/lib/models/loop", want: "the source is not found on the node: too many levels of symbolic links"},
		{name: "a link to nothing", some: "mount /models/a /var/lib/models/nowhere", want: "the source is not found on the node: no such file or directory"},
		{name: "a source that is not there yet", some: "mount /models/a /var/lib/models/new", want: "the source is not found on the node: no such file or directory"},
		{name: "a magic link that is granted by its name", some: "mount /host /proc/1/root", want: `the source leads to "/"`},
		{name: "writable where it should not be", some: "mount /models/a /var/lib/models/llama rw", want: `the grant is read-only: it takes the option ro; decisionGrants {"mounts":[{"source":"/var/lib/models/llama","destination":"/models/a","readWrite":true}]} would allow it`},
		{name: "writable by default", some: "mount /models/a /var/lib/models/llama bind", want: "the grant is read-only: it takes the option ro"},
		{name: "both ro and rw", some: "mount /models/a /var/lib/models/llama ro,rw", want: "it has both ro and rw"},
		{name: "read-only but for what is mounted below", some: "mount /models/a /var/lib/models/llama rbind,ro", want: "ro with rbind leaves the mounts below the source writable"},
		{name: "mounts that the node sees", some: "mount /models/a /var/lib/models/llama ro,rshared", want: "the grant has no option rshared"},
		{name: "setuid programs", some: "mount /models/a /var/lib/models/llama ro,suid", want: "the grant has no option suid"},
		{name: "device files", some: "mount /models/a /var/lib/models/llama ro,dev,exec", want: "the grant has no option dev, exec"},
		{name: "an option with a value", some: "mount /models/a /var/lib/models/llama ro=1", want: "the grant has no option ro=1"},
		{name: "an option of another grant", some: "mount /models/a /var/lib/models/llama ro,rslave", want: "the grant has no option rslave"},
		{name: "proc", some: "mount /models/a proc ro proc", want: `mounts of type "proc" cannot be granted`},
		{name: "sysfs", some: "mount /models/a sysfs ro sysfs", want: `mounts of type "sysfs" cannot be granted`},
		{name: "cgroup2", some: "mount /models/a cgroup ro cgroup2", want: `mounts of type "cgroup2" cannot be granted`},
		{name: "an overlay of the host", some: "mount /models/a overlay ro,lowerdir=/ overlay", want: `mounts of type "overlay" cannot be granted`},
		{name: "a disk's file system", some: "mount /models/a /dev/sda ro ext4", want: `mounts of type "ext4" cannot be granted`},
		{name: "a bind mount that says that it is a tmpfs", some: "mount /cache/a tmpfs rbind tmpfs", want: `"rbind" is no option of a mount of type tmpfs`},
		{name: "a tmpfs with a source", some: "mount /cache/a /etc rw tmpfs", want: "a tmpfs has no source"},
		{name: "a tmpfs below the granted place", some: "mount /cache/a/b tmpfs rw tmpfs", want: "mounts does not name the source and the destination"},

		{name: "a disk within a pattern", some: "device /dev/sda b 8:0", want: "it is a block device or one of the kernel's memory, so devices has to name it itself"},
		{name: "the kernel's memory within a pattern", some: "device /dev/nvidia0 c 1:1", want: "it is a block device or one of the kernel's memory"},
		{name: "a device outside of /dev", some: "device /nvidia0 c 195:0", want: "only devices below /dev can be granted"},
		{name: "a device in a directory", some: "device /dev/nvidia/x c 195:0", want: "devices does not name it"},
		{name: "a device that is not there", some: "device /dev/nvidia7 c 195:7", want: "the device is not found on the node: no such file or directory"},
		{name: "a device that is a file", some: "device /dev/nvidia-file c 195:7", want: "the device is not found on the node: /dev/nvidia-file is no device"},
		{name: "a device that is a link", some: "device /dev/nvidia-link c 195:7", want: "the device is not found on the node: it leads to /dev/sda"},
		{name: "a device that is a FIFO", some: "device /dev/nvidia-fifo c 195:7", want: "on the node the path is p 0:0"},
		{name: "another device's numbers", here: "device /dev/tty c 10:200", want: "on the node the path is c 5:0"},
		{name: "a disk with the name of a terminal", here: "device /dev/tty b 8:0", want: "on the node the path is c 5:0"},
		{name: "memory within a pattern", here: "device /dev/zero c 1:5", want: "it is a block device or one of the kernel's memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			on, name := e, "some"
			switch {
			case c.none != "":
				name = "none"
			case c.here != "":
				on, name = node, "p"
			}
			req := script(map[string]string{"none": c.none, "some": c.some, "p": c.here})
			req.Stage = abi.PreCreateContainer
			d, err := on.Decide(t.Context(), req)
			var grant *hooks.GrantError
			var refused *hooks.DecisionError
			if !errors.As(err, &grant) || !errors.As(err, &refused) || refused.Plugin != name || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v and error %v\nwant one with %s", d, err, c.want)
			}
			if want := `decide PreCreateContainer of container shop/web-0/nginx: plugin "` + name + `": decision: `; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("the error is %v\nwant one that begins with %s", err, want)
			}
		})
	}
}

func TestDecideTakesWhatIsGranted(t *testing.T) {
	some, here := plugin(t, "some", scripted), plugin(t, "p", scripted)
	some.DecisionGrants = modest()
	here.DecisionGrants = hooks.Grants{Devices: []string{"/dev/null", "/dev/tt*"}}
	e := engine(t, hooks.Config{HostRoot: hostRoot(t), Plugins: []hooks.PluginConfig{some}})
	node := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{here}})
	for _, c := range []struct{ some, here string }{
		{some: "env NVIDIA_VISIBLE_DEVICES 0"},
		{some: "env GOGC 50\nenv LANG C\nenv POD x"},
		{some: "annotation example.com/a 1"},
		{some: "annotation io.kubernetes.cri-o.userns-mode auto"},
		{some: "annotation cdi.k8s.io/plugin nvidia.com/gpu=0,nvidia.com/gpu=all,vendor.com/nic=0"},
		{some: "mount /models/a /var/lib/models/llama"},
		{some: "mount /models/a/b/c /var/lib/models/deep/er bind,ro,nosuid,nodev,noexec,rprivate"},
		{some: "mount /models/a /var/lib/models/llama rbind,rro"},
		{some: "mount /models/a /var/lib/models/again"},
		{some: "mount /models/a /var/lib/models/long"},
		{some: "mount /scratch /var/lib/models/llama rbind,rw,rslave"},
		{some: "mount /cache/a tmpfs rw,size=1m,mode=0700 tmpfs"},
		{some: "device /dev/nvidia-fifo p 0:0"},
		{here: "device /dev/null c 1:3"},
		{here: "device /dev/tty c 5:0 600"},
	} {
		on := e
		if c.here != "" {
			on = node
		}
		if d, err := on.Decide(t.Context(), script(map[string]string{"some": c.some, "p": c.here})); err != nil || d.Fields() == 0 {
			t.Errorf("%+v: got %v and error %v", c, d, err)
		}
	}
}

// The same decision may be granted at one time and not at the next.
func TestMountsAreLookedUpEachTime(t *testing.T) {
	root := hostRoot(t)
	p := plugin(t, "some", scripted)
	p.DecisionGrants = modest()
	e := engine(t, hooks.Config{HostRoot: root, Plugins: []hooks.PluginConfig{p}})
	req := script(map[string]string{"some": "mount /models/a /var/lib/models/llama"})
	if _, err := e.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(root, "var/lib/models/llama")
	if err := os.Remove(model); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", model); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Decide(t.Context(), req); err == nil || !strings.Contains(err.Error(), `the source leads to "/"`) {
		t.Errorf("after the source became a link: %v", err)
	}
}

func TestGrantsAreCheckedAtRegistration(t *testing.T) {
	source, err := guest(scripted)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		grants hooks.Grants
		owns   []string
		want   string
	}{
		{name: "nothing"},
		{name: "as an operator gives them", grants: modest(), owns: []string{
			"container_envs[NVIDIA_VISIBLE_DEVICES]", "container_annotations", "container_annotations[cdi.k8s.io/x]", "container_mounts[/models/x]", "container_devices[/dev/nvidia0]", "cpu_shares",
		}},

		{name: "any variable", grants: hooks.Grants{Env: []string{"*"}}, want: `decisionGrants: env "*" is not a name, or a beginning of names and a *`},
		{name: "no variable", grants: hooks.Grants{Env: []string{""}}, want: `env "" is not a name`},
		{name: "a variable with its value", grants: hooks.Grants{Env: []string{"A=1"}}, want: `env "A=1" is not a name`},
		{name: "two stars", grants: hooks.Grants{Env: []string{"A*B*"}}, want: `env "A*B*" is not a name`},
		{name: "the loader's variables", grants: hooks.Grants{Env: []string{"LD_*"}}, want: `env "LD_*" stands for variables that decide what a process runs, trusts or talks to: name each`},
		{name: "any annotation", grants: hooks.Grants{Annotations: []string{"*"}}, want: `annotation "*" is not a key, or a domain with a / and a *`},
		{name: "half a domain", grants: hooks.Grants{Annotations: []string{"example*"}}, want: `annotation "example*" is not a key`},
		{name: "the annotations of CRI-O", grants: hooks.Grants{Annotations: []string{"x.crio.io/*"}}, want: `annotation "x.crio.io/*" stands for keys that a runtime acts upon: name each`},
		{name: "those of Kubernetes", grants: hooks.Grants{Annotations: []string{"kubernetes.io/*"}}, want: `stands for keys that a runtime acts upon`},
		{name: "CDI by an annotation", grants: hooks.Grants{Annotations: []string{"cdi.k8s.io/x"}}, want: `annotation "cdi.k8s.io/x" asks for CDI devices: cdi grants those`},
		{name: "any CDI device", grants: hooks.Grants{CDI: []string{"*"}}, want: `cdi "*" is not like vendor.com/class=name`},
		{name: "any kind of CDI device", grants: hooks.Grants{CDI: []string{"*/gpu=0"}}, want: `cdi "*/gpu=0" is not like`},
		{name: "anything on the node", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/**", Destination: "/x"}}}, want: `mount source "/**" begins with no name`},
		{name: "the node's root", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/", Destination: "/x"}}}, want: `mount source "/" is not an absolute and clean path`},
		{name: "anything in /proc", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/proc/*/root", Destination: "/x"}}}, want: `mount source "/proc/*/root": the files of /proc are granted by their own paths`},
		{name: "anywhere in the container", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/x", Destination: "/**"}}}, want: `mount destination "/**" begins with no name`},
		{name: "over the container's devices", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/x", Destination: "/dev/**"}}}, want: `mount destination "/dev/**": the files of /dev are granted`},
		{name: "a path that climbs", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/a/../**", Destination: "/x"}}}, want: `mount source "/a/../**" is not an absolute and clean path`},
		{name: "a pattern within a path", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/a/**/b", Destination: "/x"}}}, want: `mount source "/a/**/b" is not a pattern`},
		{name: "a class of characters", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Source: "/a/[b]", Destination: "/x"}}}, want: `mount source "/a/[b]" is not a pattern`},
		{name: "a file system", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Type: "proc", Destination: "/x"}}}, want: `mount of type "proc": only bind and tmpfs can be granted`},
		{name: "a tmpfs with a source", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Type: "tmpfs", Source: "/a", Destination: "/x"}}}, want: `mount "/a": a tmpfs has no source`},
		{name: "bind as an option", grants: hooks.Grants{Mounts: []hooks.MountGrant{{Type: "tmpfs", Destination: "/x", Options: []string{"rbind"}}}}, want: `mount option "rbind" cannot be granted`},
		{name: "any device", grants: hooks.Grants{Devices: []string{"/dev/*"}}, want: `device "/dev/*" is not a path below /dev whose first name is known`},
		{name: "everything below /dev", grants: hooks.Grants{Devices: []string{"/dev/**"}}, want: `device "/dev/**" is not a path below /dev`},
		{name: "a device elsewhere", grants: hooks.Grants{Devices: []string{"/tmp/sda"}}, want: `device "/tmp/sda" is not a path below /dev`},

		{name: "it owns a variable", owns: []string{"container_envs[A]"}, want: `plugin "p": owns: container_envs[A] is not granted: env does not name it; decisionGrants {"env":["A"]} would allow it`},
		{name: "it owns a variable of the loader", grants: modest(), owns: []string{"container_envs[LD_PRELOAD]"}, want: `owns: container_envs[LD_PRELOAD] is not granted: it decides`},
		{name: "it owns all variables", owns: []string{"container_envs"}, want: `owns: container_envs is not granted: the plugin may set none of it`},
		{name: "it owns all mounts", owns: []string{"container_mounts"}, want: `owns: container_mounts is not granted`},
		{name: "it owns a mount", grants: modest(), owns: []string{"container_mounts[/etc]"}, want: `owns: container_mounts[/etc] is not granted: mounts does not name the destination`},
		{name: "it owns a device", grants: modest(), owns: []string{"container_devices[/dev/kvm]"}, want: `owns: container_devices[/dev/kvm] is not granted: devices does not name it; decisionGrants {"devices":["/dev/kvm"]} would allow it`},
		{name: "it owns a CDI annotation", owns: []string{"container_annotations[cdi.k8s.io/x]"}, want: `owns: container_annotations[cdi.k8s.io/x] is not granted: cdi names no device`},
		{name: "it owns an annotation", owns: []string{"container_annotations[a]"}, want: `owns: container_annotations[a] is not granted`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source}}, DecisionGrants: c.grants, Owns: c.owns}}})
			if err == nil {
				defer e.Close(context.Background())
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got error %v\nwant one with %s", err, c.want)
			}
		})
	}
}

// A module that declares what is not granted is refused when it is loaded, and when
// it is swapped in.
func TestModuleDeclaresWhatItDecides(t *testing.T) {
	module, err := os.ReadFile("../abi/conformance/testdata/hook.wasm")
	if err != nil {
		t.Fatal(err)
	}
	declaring := func(fields ...string) host.Source {
		b, err := metadata.Add(module, &metadata.Metadata{ABI: 1, Kinds: []string{"hook"}, Decides: fields})
		if err != nil {
			t.Fatal(err)
		}
		return host.Bytes(b)
	}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: declaring("cpu_shares", "container_envs[NVIDIA_X]")}}, DecisionGrants: modest()}}})
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{[]string{"container_envs[LD_PRELOAD]"}, "read the module's declaration of its decisions: container_envs[LD_PRELOAD] is not granted: it decides"},
		{[]string{"container_mounts[/etc]"}, "read the module's declaration of its decisions: container_mounts[/etc] is not granted: mounts does not name the destination"},
		{[]string{"env"}, `read the module's declaration of its decisions: "env" is no field of a decision`},
		{[]string{"memory_limit_bytes", "container_annotations"}, ""},
	} {
		source := declaring(c.fields...)
		fresh, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source}}, DecisionGrants: modest()}}})
		if err == nil {
			fresh.Close(context.Background())
		}
		for _, err := range []error{err, e.Swap(t.Context(), "p", source, "")} {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q: got error %v\nwant one with %s", c.fields, err, c.want)
			}
		}
	}
	if _, err := e.Decide(t.Context(), webRequest()); err != nil {
		t.Errorf("after the swaps: %v", err)
	}
}

// No failure policy lets a part of a refused decision through, and no dry run does.
func TestWhatIsNotGrantedIsRefusedAsAWhole(t *testing.T) {
	var log bytes.Buffer
	ignores, keeps, dry := plugin(t, "ignores", scripted), plugin(t, "keeps", scripted), plugin(t, "dry", scripted)
	ignores.FailurePolicy, keeps.FailurePolicy, dry.Mode = host.Ignore, host.KeepLast, host.Monitor
	var told []string
	e := engine(t, hooks.Config{
		Plugins: []hooks.PluginConfig{ignores, keeps, dry}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Observer: monitored(func(plugin string, _ *hookmsg.Decision) { told = append(told, plugin) }),
	})
	req := script(map[string]string{"keeps": "cpu_shares 3"})
	req.Pod.UID = "u1"
	if _, err := e.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	const bad = "cpu_bvt 1\nenv LD_PRELOAD x"
	req.PodAnnotations = map[string]string{"ignores": bad, "keeps": bad, "dry": bad}
	got, err := e.Decide(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := &hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: new(int64(3))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if told != nil {
		t.Errorf("the dry run of %v was told", told)
	}
	for _, name := range []string{"ignores", "keeps", "dry"} {
		if want := `plugin=` + name + ` request="Reconcile of container shop/web-0/nginx" err="plugin \"` + name + `\": decision: container_envs[LD_PRELOAD]`; !strings.Contains(log.String(), want) {
			t.Errorf("logged %s\nwant %s", log.String(), want)
		}
	}
}

// TestRefusalsAreLogged holds that each failure of a plugin with the policy Fail is told with the
// plugin and the cause: the runtime says only that the container was refused.
func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	spins := plugin(t, "spins", scripted)
	spins.Limits.Fuel = 20_000_000
	e := engine(t, hooks.Config{
		Plugins: []hooks.PluginConfig{plugin(t, "first", scripted), spins}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, c := range []struct {
		annotations   map[string]string
		plugin, cause string
	}{
		{map[string]string{"first": "error it is Monday"}, "first", "status"},
		{map[string]string{"first": "env LD_PRELOAD x"}, "first", "grant"},
		{map[string]string{"first": "cpu_shares 5", "spins": "cpu_shares 6"}, "spins", "conflict"},
		{map[string]string{"spins": "panic"}, "spins", "trap"},
		{map[string]string{"spins": "loop"}, "spins", "fuel"},
	} {
		log.Reset()
		_, err := e.Decide(t.Context(), script(c.annotations))
		if err == nil {
			t.Errorf("%v was decided", c.annotations)
		}
		begins, ends := `msg="refused by the failure of a runtime hook" plugin=`+c.plugin, "cause="+c.cause+"\n"
		if got := log.String(); strings.Count(got, begins) != 1 || !strings.HasSuffix(got, ends) {
			t.Errorf("%v: logged %s\nwant one line with %s, and %s", c.annotations, got, begins, ends)
		}
	}
}

// An audit reports what would be refused, and what it reports would allow it.
func TestAudit(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.DecisionGrants = hooks.Grants{Env: []string{"A"}}
	p.Owns = []string{"container_envs", "container_mounts", "container_devices", "container_annotations"}
	var needs []hooks.Grants
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}, Audit: func(_ context.Context, req *hookmsg.Request, plugin string, err *hooks.GrantError) {
		if req.Container.Name != "nginx" || plugin != "p" || err.Grants == nil {
			t.Errorf("told of %v, %s, %v", req, plugin, err)
			return
		}
		needs = append(needs, *err.Grants)
	}})
	req := script(map[string]string{"p": "env A 1\nenv LD_AUDIT x\nmount /models /nowhere rbind\ndevice /dev/none c 195:0\nannotation cdi.k8s.io/x v.com/c=n\nannotation run.oci.handler x"})
	for range 2 { // The second is the same decision.
		needs = nil
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := []hooks.Grants{
			{CDI: []string{"v.com/c=n"}}, {Annotations: []string{"run.oci.handler"}}, {Devices: []string{"/dev/none"}}, {Env: []string{"LD_AUDIT"}},
			{Mounts: []hooks.MountGrant{{Source: "/nowhere", Destination: "/models", ReadWrite: true}}},
		}
		if diff := cmp.Diff(want, needs); diff != "" {
			t.Error(diff)
		}
		all := hooks.Grants{Env: []string{"A"}}
		for _, g := range needs {
			all.Add(&g)
		}
		if err := all.Check(d); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkDecideGranted(b *testing.B) {
	p := plugin(b, "some", scripted)
	p.DecisionGrants = modest()
	e := engine(b, hooks.Config{HostRoot: hostRoot(b), Plugins: []hooks.PluginConfig{p}})
	for _, c := range []struct{ name, script string }{
		{"a number", "cpu_shares 2"}, {"a variable", "env NVIDIA_X 1"}, {"a mount", "mount /models/a /var/lib/models/llama"},
	} {
		b.Run(c.name, func(b *testing.B) {
			req := script(map[string]string{"some": c.script})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Decide(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A guest that decides more than any container has gets one refusal, of a bounded length,
// and no files are looked at for it.
func TestManyRefusedGrantsAreOneShortError(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.DecisionGrants = modest()
	p.Limits.Timeout = time.Minute // The guest has a lot to write.
	e := engine(t, hooks.Config{HostRoot: hostRoot(t), Plugins: []hooks.PluginConfig{p}})
	long := strings.Repeat("A", 50_000)
	for _, c := range []struct{ name, script, want string }{
		{"variables", lines(2000, "env A%d 1"), "is not granted: env does not name it"},
		{"a long name", "env " + long + " 1", "bytes more)"},
		{"a long value out of its form", "unified " + long + ` "1"`, "not a cgroup file's name"},
		{"mounts", lines(129, "mount /models/%d /var/lib/models/llama"), "container_mounts has 129 entries, want at most 128"},
		{"devices", lines(129, "device /dev/nvidia%d c 195:0"), "container_devices has 129 entries, want at most 128"},
		{"files", lines(65, `unified io.x%d "1"`), "unified has 65 entries, want at most 64"},
	} {
		_, err := e.Decide(t.Context(), script(map[string]string{"p": c.script}))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 5000 {
			t.Errorf("%s: got error %.500v of %d bytes, want one with %s", c.name, err, len(err.Error()), c.want)
		}
	}
	if _, err := e.Decide(t.Context(), script(map[string]string{"p": lines(128, "mount /models/%d /var/lib/models/llama")})); err != nil {
		t.Error(err)
	}
}

// lines returns n lines, numbered.
func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

func TestNewEngineWantsTheHostRoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]string{"/nowhere/at/all": "host root: stat /nowhere/at/all: no such file or directory", file: "host root: " + file + " is not a directory"} {
		if _, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{HostRoot: root}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
	}
}
