package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Process is a program that runs beside a control plane.
type Process struct {
	// Address is where it serves, host:port.
	Address string

	mu   sync.Mutex
	logs bytes.Buffer
	err  error
	done chan struct{}
}

// Logs returns what the process has written until now.
func (p *Process) Logs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

// Write takes the process's output.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.Write(b)
}

// Run starts binary with args and waits until it answers GET /healthz at address
// over TLS with 200. It is killed when the test ends. Ending earlier fails the
// test, and a test that failed shows what it wrote.
func Run(t testing.TB, binary, address string, args ...string) *Process {
	t.Helper()
	p := &Process{Address: address, done: make(chan struct{})}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = p, p
	// A test that is killed takes its children with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", filepath.Base(binary), err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		select {
		case <-p.done:
			t.Errorf("%s ended on its own: %v", filepath.Base(binary), p.err)
		default:
		}
		_ = cmd.Process.Kill() // Gone already is as good.
		<-p.done
		if t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(binary), p.Logs())
		}
	})

	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // Its certificate is its own.
		DisableKeepAlives: true,
	}}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("it ended: %w", errors.Join(p.err, errors.New(p.Logs())))
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		t.Fatalf("wait for %s: %v", filepath.Base(binary), err)
	}
	return p
}

// RunScheduler runs a kube-scheduler binary against the cluster. Profiles is the
// part of its KubeSchedulerConfiguration from profiles on, in YAML. Flags are further ones.
func (c *Cluster) RunScheduler(t testing.TB, binary, profiles string, flags ...string) *Process {
	t.Helper()
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 500, burst: 1000}
%s`, strconv.Quote(c.Kubeconfig), profiles)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return Run(t, binary, address, append([]string{
		"--config=" + config, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--authentication-kubeconfig=" + c.Kubeconfig, "--authorization-kubeconfig=" + c.Kubeconfig,
		"--authentication-skip-lookup=true", "--v=2",
	}, flags...)...)
}

// FreeAddress returns an address on loopback that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
