package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
)

// nodeOf makes the files of a hierarchy of cgroup v2, with the given cgroups.
func nodeOf(t *testing.T, cgroups ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range cgroups {
		if err := os.MkdirAll(filepath.Join(root, c), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, c, "cpu.weight"), []byte("100\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("a mount takes root: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	const systemd = "kubepods.slice"
	for name, c := range map[string]struct {
		cgroups  []string
		layout   cgroup.Layout
		readOnly bool
		dryRun   bool
		want     string // Empty for none.
	}{
		"cgroupfs": {cgroups: []string{"kubepods"}},
		"systemd":  {cgroups: []string{systemd}, layout: cgroup.Layout{Driver: cgroup.Systemd}},
		"below another cgroup": {
			cgroups: []string{"nodes/kubepods"}, layout: cgroup.Layout{Root: "/nodes"},
		},
		"the other driver": {
			cgroups: []string{"kubepods"}, layout: cgroup.Layout{Driver: cgroup.Systemd},
			want: "has no kubepods.slice, and has kubepods: the kubelet's cgroup driver is cgroupfs, not systemd",
		},
		"the other driver, the other way round": {
			cgroups: []string{systemd}, want: "the kubelet's cgroup driver is systemd, not cgroupfs",
		},
		"no kubelet":                      {want: "has no kubepods: check that the kubelet runs"},
		"another cgroupRoot":              {cgroups: []string{"kubepods"}, layout: cgroup.Layout{Root: "nodes"}, want: "has no nodes/kubepods"},
		"read-only":                       {cgroups: []string{"kubepods"}, readOnly: true, want: "open kubepods/cpu.weight: read-only file system (a container must be privileged"},
		"read-only, for a dry run":        {cgroups: []string{"kubepods"}, readOnly: true, dryRun: true},
		"no controller":                   {cgroups: []string{"kubepods", "-"}, want: "kubepods in "},
		"the other driver, for a dry run": {cgroups: []string{systemd}, dryRun: true, want: "driver is systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			root := nodeOf(t, c.cgroups...)
			if len(c.cgroups) == 2 {
				if err := os.Remove(filepath.Join(root, "kubepods", "cpu.weight")); err != nil {
					t.Fatal(err)
				}
			}
			if c.readOnly {
				readOnly(t, root)
			}
			e := enforcer(t, new(cgroup.State), root, cgroup.EnforcerConfig{DryRun: c.dryRun})
			err := e.Check(c.layout)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestFindDriver(t *testing.T) {
	for name, c := range map[string]struct {
		cgroups []string
		root    string
		driver  cgroup.Driver
		want    string
	}{
		"cgroupfs":        {cgroups: []string{"kubepods/burstable/poda"}},
		"systemd":         {cgroups: []string{"kubepods.slice/kubepods-poda.slice"}, driver: cgroup.Systemd},
		"without a pod":   {cgroups: []string{"kubepods.slice"}, driver: cgroup.Systemd},
		"with cgroupRoot": {cgroups: []string{"nodes.slice/nodes-kubepods.slice"}, root: "/nodes", driver: cgroup.Systemd},
		"what the driver before has left": {
			cgroups: []string{"kubepods/burstable", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda.slice"}, driver: cgroup.Systemd,
		},
		"nothing":   {want: "has neither kubepods nor kubepods.slice: check that the kubelet runs"},
		"both used": {cgroups: []string{"kubepods/poda", "kubepods.slice/kubepods-podb.slice"}, want: "has kubepods and kubepods.slice: name the one"},
	} {
		t.Run(name, func(t *testing.T) {
			a := applier(t, cgroup.ApplierConfig{Root: nodeOf(t, c.cgroups...)})
			driver, err := a.FindDriver(c.root)
			if driver != c.driver || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s, error %v, want %s and %q", driver, err, c.driver, c.want)
			}
		})
	}
}

func TestLock(t *testing.T) {
	root := cgrouptest.Mount // The kernel's, whose directories take locks as others do.
	a, b := applier(t, cgroup.ApplierConfig{Root: root}), applier(t, cgroup.ApplierConfig{Root: root})
	unlock, err := a.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lock(); !errors.Is(err, cgroup.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	unlock()
	again, err := b.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again()
}
