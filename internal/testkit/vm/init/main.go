//go:build linux

// Command init is the first process of the virtual machine. It mounts the file systems that a test
// needs, runs the test, prints the result and switches the machine off. Under the name of sleep it
// sleeps, as a process to put into cgroups.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if filepath.Base(os.Args[0]) == "sleep" {
		time.Sleep(time.Hour)
		return
	}
	if err := run(); err != nil {
		fmt.Println("vm: failed:", err)
	} else {
		fmt.Println("vm: passed")
	}
	syscall.Sync()
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"devtmpfs", "/dev"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	pattern, err := os.ReadFile("/pattern")
	if err != nil {
		return err
	}
	cmd := exec.Command("/test", "-test.v", "-test.timeout=10m", "-test.run="+string(pattern))
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp", "CI=1", "KUBEWASM_GUEST_DIR=/guests"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// loopback sets the loopback interface up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
