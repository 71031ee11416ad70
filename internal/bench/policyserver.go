package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The policies of the policy server: each module has five settings.
const (
	serverPolicies = 50
	serverModules  = 10
	serverChanges  = 100
)

// publishedMemory is what Kubewarden has published of its policy-server.
const publishedMemory = "its policy-server with a dozen policies, published (pull request 496)"

// serverGuest is a policy for Kubewarden in a language.
type serverGuest struct {
	language string
	module   []byte
	// denial is in the message of a denial and in the data of the module. Its last byte may be
	// another.
	denial string
	// settings are those of policy i.
	settings func(i int, deny bool) map[string]any
}

// benchPolicyServer measures the example of a policy server as a process of its own: 50
// policies, of ten modules, which are asked over HTTP and changed.
func benchPolicyServer(b *bench) error {
	module, err := buildPlain(b.ctx, "../../admission/kubewarden/internal/policies/testdata/kubewardengo")
	if err != nil {
		return err
	}
	guests := []serverGuest{{"Go", module, " is missing", func(i int, deny bool) map[string]any {
		return map[string]any{"labels": []string{map[bool]string{false: "app", true: "missing"}[deny]}, "number": i}
	}}}
	if _, err := exec.LookPath("clang"); err == nil {
		file := filepath.Join(os.TempDir(), fmt.Sprintf("kubewasm-bench-%d.wasm", os.Getpid()))
		defer os.Remove(file)
		out, err := exec.CommandContext(b.ctx, "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", file, source("../../admission/kubewarden/internal/policies/testdata/kubewarden/policy.c")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build the policy in C: %w: %s", err, out)
		}
		module, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		guests = append(guests, serverGuest{"C", module, "not here", func(i int, deny bool) map[string]any {
			return map[string]any{"is": map[bool]string{false: "quiet", true: "mode-deny"}[deny], "number": i}
		}})
	}
	for _, guest := range guests {
		if err := benchPolicies(b, guest); err != nil {
			return fmt.Errorf("policies in %s: %w", guest.language, err)
		}
	}
	return nil
}

func benchPolicies(b *bench, guest serverGuest) error {
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "policy-server")
	build := exec.CommandContext(b.ctx, "go", "build", "-o", binary, ".")
	build.Dir = source("../../cmd/kubewasm-policy-server")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the policy server: %w: %s", err, out)
	}
	for i := range serverModules {
		// Another text in its data makes it another module.
		other := bytes.ReplaceAll(guest.module, []byte(guest.denial), fmt.Appendf(nil, "%s%d", guest.denial[:len(guest.denial)-1], i))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("policy-%d.wasm", i)), other, 0o600); err != nil {
			return err
		}
	}
	s := &policyServer{dir: dir, binary: binary, guest: guest, denies: make([]bool, serverPolicies)}
	body, err := review(pod())
	if err != nil {
		return err
	}
	s.review = body
	if err := s.write(); err != nil {
		return err
	}
	cold, err := s.start(b.ctx)
	if err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	warm, err := s.start(b.ctx)
	if err != nil {
		return err
	}
	err = errors.Join(s.measure(b, cold, warm), s.stop())
	return err
}

// policyServer is a process of the example.
type policyServer struct {
	dir, binary string
	review      []byte
	guest       serverGuest
	// denies says which policies deny.
	denies []bool
	cmd    *exec.Cmd
	log    *os.File
	url    string
}

func policyID(i int) string { return fmt.Sprintf("clusterwide-policy-%d", i) }

// write writes policies.yml as the controller does.
func (s *policyServer) write() error {
	policies := map[string]any{}
	for i, deny := range s.denies {
		policies[policyID(i)] = map[string]any{
			"namespacedName": map[string]string{"Namespace": "", "Name": fmt.Sprintf("policy-%d", i)}, "policyMode": "protect", "allowedToMutate": false,
			"module":   "file://" + filepath.Join(s.dir, fmt.Sprintf("policy-%d.wasm", i%serverModules)),
			"settings": s.guest.settings(i, deny), "hostCapabilities": []string{"*"},
		}
	}
	text, err := json.Marshal(policies)
	if err != nil {
		return err
	}
	next := filepath.Join(s.dir, "next.yml")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(s.dir, "policies.yml"))
}

// start starts the server and returns how long it took to be ready.
func (s *policyServer) start(ctx context.Context) (time.Duration, error) {
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		ports[i] = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
		if err := l.Close(); err != nil {
			return 0, err
		}
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return 0, err
	}
	s.log = log
	s.cmd = exec.CommandContext(ctx, s.binary, "-addr", "127.0.0.1", "-port", ports[0], "-readiness-probe-port", ports[1], "-policies", filepath.Join(s.dir, "policies.yml"),
		"-policies-download-dir", s.dir, "-drain-delay", "0s")
	s.cmd.Stderr = log
	s.cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "none"))
	begun := time.Now()
	if err := s.cmd.Start(); err != nil {
		return 0, err
	}
	s.url = "http://127.0.0.1:" + ports[0] + "/validate/"
	for {
		resp, err := http.Get("http://127.0.0.1:" + ports[1] + "/readiness")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(begun), nil
			}
		}
		if time.Since(begun) > 5*time.Minute || ctx.Err() != nil {
			text, _ := os.ReadFile(log.Name()) // It may help.
			return 0, errors.Join(fmt.Errorf("the policy server is not ready: %s", text), s.stop())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *policyServer) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, s.cmd.Wait(), s.log.Close())
}

// ask returns whether a policy allows the Pod.
func (s *policyServer) ask(client *http.Client, i int) (bool, error) {
	resp, err := client.Post(s.url+policyID(i)+"?timeout=10s", "application/json", bytes.NewReader(s.review))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	allowed := bytes.Contains(text, []byte(`"allowed":true`))
	if resp.StatusCode != http.StatusOK || !allowed && !bytes.Contains(text, []byte(s.guest.denial[:len(s.guest.denial)-1])) {
		return false, fmt.Errorf("%s answers %s: %s", policyID(i), resp.Status, text)
	}
	return allowed, nil
}

// resident returns the resident memory of the process, in bytes.
func (s *policyServer) resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib float64
			_, err := fmt.Sscan(rest, &kib)
			return kib * 1024, err
		}
	}
	return 0, errors.New("there is no VmRSS")
}

func (s *policyServer) measure(b *bench, cold, warm time.Duration) error {
	what := fmt.Sprintf("policy server, %d policies of %d modules in %s of %.2f MB", serverPolicies, serverModules, s.guest.language, float64(len(s.guest.module))/1e6)
	b.add(what+": ready, nothing compiled", short(cold), "", "", 0, "", true)
	b.add("ready, compiled before", short(warm), "nothing compiled", short(cold), float64(warm)/float64(cold), "<= 5s", warm <= 5*time.Second)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var verdicts []float64
	for round := range 20 {
		for i := range serverPolicies {
			begun := time.Now()
			allowed, err := s.ask(client, i)
			if err != nil || !allowed {
				return fmt.Errorf("verdict of policy %d: %t, %w", i, allowed, err)
			}
			if round > 0 { // The first makes what all share.
				verdicts = append(verdicts, float64(time.Since(begun)))
			}
		}
	}
	slices.Sort(verdicts)
	middle, slow := time.Duration(median(verdicts)), time.Duration(verdicts[len(verdicts)*99/100])
	b.add("verdict over HTTP, one client, median and 99th percentile", short(middle)+", "+short(slow), "", "", 0, "<= 1ms", middle <= time.Millisecond)
	time.Sleep(5 * time.Second) // It gives memory back after a while.
	memory, err := s.resident()
	if err == nil { // Elsewhere than on Linux it is not told.
		const most = 506.484e6
		b.add("resident memory after 1,000 verdicts", fmt.Sprintf("%.0f MB", memory/1e6), publishedMemory, "506 MB, one worker", memory/most, "<= 1x", memory <= most)
	}
	return s.change(b, client)
}

// change changes one policy after the other while clients ask all of them.
func (s *policyServer) change(b *bench, client *http.Client) error {
	done := make(chan struct{})
	var requests, failures atomic.Int64
	var mu sync.Mutex
	var gap time.Duration
	var firstErr error
	var wg sync.WaitGroup
	for c := range 2 {
		wg.Go(func() {
			last := time.Now()
			for i := c; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				_, err := s.ask(client, i%serverPolicies)
				requests.Add(1)
				now := time.Now()
				mu.Lock()
				if err != nil {
					failures.Add(1)
					firstErr = err
				} else {
					gap = max(gap, now.Sub(last))
					last = now
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // An API server has other work, too.
			}
		})
	}
	var took []float64
	var err error
	for n := range serverChanges {
		i := n % serverPolicies
		s.denies[i] = !s.denies[i]
		begun := time.Now()
		if err = s.write(); err != nil {
			break
		}
		for allowed := s.denies[i]; allowed == s.denies[i] && err == nil; {
			if allowed, err = s.ask(client, i); time.Since(begun) > time.Minute {
				err = fmt.Errorf("the change of policy %d has no effect", i)
			}
		}
		if err != nil {
			break
		}
		took = append(took, float64(time.Since(begun)))
	}
	close(done)
	wg.Wait()
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("%d changes of a policy: requests that failed", serverChanges), fmt.Sprintf("%d of %d", failures.Load(), requests.Load()), "its policy-server, by its source", "a restart for each change", 0, "0", failures.Load() == 0)
	b.add("longest time between two answers to a client", short(gap), "", "", 0, "<= 1s", gap <= time.Second)
	b.add("from the write of policies.yml to the first new verdict", short(time.Duration(median(took))), "", "", 0, "", true)
	time.Sleep(5 * time.Second) // It gives memory back after a while.
	if memory, err := s.resident(); err == nil {
		b.add("resident memory some seconds after the changes", fmt.Sprintf("%.0f MB", memory/1e6), "", "", 0, "", true)
	}
	if firstErr != nil {
		return fmt.Errorf("a request failed: %w", firstErr)
	}
	return nil
}
