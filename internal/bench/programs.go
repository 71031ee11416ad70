package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// Targets of the programs, in bytes.
const (
	mostOfOne       = 100e6 // 50 policies of one module.
	mostOfDifferent = 250e6 // 50 policies of different modules.
	mostOfAgent     = 60e6
	mostOfScheduler = 10e6 // Beyond kube-scheduler.
	mostGrowth      = 1.1  // By 50 swaps.
)

// mostAnswer is the longest time for an answer: a review without a timeout has 10 seconds.
const mostAnswer = 15 * time.Second

// benchPrograms measures the built programs: their resident memory with plugins and without, the
// time until they are ready, and what swaps and idle time leave behind.
func benchPrograms(b *bench) error {
	return withPrograms(b, func(m *programs) error { return errors.Join(m.webhooks(), m.agents(), m.schedulers()) })
}

// benchRandom measures what random requests leave behind in a built program.
func benchRandom(b *bench) error { return withPrograms(b, (*programs).random) }

func withPrograms(b *bench, run func(*programs) error) error {
	dir, err := os.MkdirTemp("", "kubewasm-programs-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := &programs{b: b, dir: dir}
	if m.client, err = keyPair(dir); err != nil {
		return err
	}
	if m.policy, err = guestbuild.Build(b.ctx, source("../../examples/admission/required-labels")); err != nil {
		return err
	}
	return run(m)
}

// programs are the measurements of built programs.
type programs struct {
	b           *bench
	dir, policy string
	client      *http.Client
}

// build builds a program and returns its file.
func (m *programs) build(directory, pkg string) (string, error) {
	file := filepath.Join(m.dir, filepath.Base(directory)+"-"+filepath.Base(pkg))
	cmd := exec.CommandContext(m.b.ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Dir = source(directory)
	if filepath.Base(directory) == "kubewasm-webhook" {
		cmd.Args = slices.Insert(cmd.Args, 2, "-tags=grpcnotrace") // As in its Dockerfile.
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", directory, err, out)
	}
	return file, nil
}

// process is a running program.
type process struct {
	cmd *exec.Cmd
	log *os.File
	// ready is the time from its start until it was ready.
	ready time.Duration
	// ended has the error of the process when it has ended.
	ended chan error
}

// start starts a program, and waits until ready returns nil.
func (m *programs) start(file string, args []string, ready func() error) (*process, error) {
	log, err := os.CreateTemp(m.dir, "log-*")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(m.b.ctx, file, args...), log: log, ended: make(chan error, 1)}
	p.cmd.Stderr, p.cmd.Env = log, append(os.Environ(), "KUBERNETES_SERVICE_HOST=", "KUBECONFIG=/nonexistent", "XDG_CACHE_HOME="+m.dir)
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	for {
		if err = ready(); err == nil {
			p.ready = time.Since(begun)
			return p, nil
		}
		select {
		case err := <-p.ended:
			text, _ := os.ReadFile(log.Name()) // It may help.
			return nil, fmt.Errorf("%s has ended: %w: %.2000s", filepath.Base(file), err, text)
		default:
		}
		if time.Since(begun) > 10*time.Minute || m.b.ctx.Err() != nil {
			text, _ := os.ReadFile(log.Name()) // It may help.
			return nil, errors.Join(fmt.Errorf("%s is not ready: %w: %.2000s", filepath.Base(file), err, text), p.stop())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	err := <-p.ended
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil // A program that is told to end may say that it was interrupted.
	}
	return errors.Join(err, p.log.Close())
}

// status returns a field of /proc/PID/status, in bytes.
func (p *process) status(name string) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}

// settled returns the resident memory once it has not fallen for three seconds.
func (p *process) settled() (uint64, error) {
	least, err := p.status("VmRSS")
	for quiet := 0; quiet < 6 && err == nil; quiet++ {
		time.Sleep(500 * time.Millisecond)
		var now uint64
		if now, err = p.status("VmRSS"); now+1<<20 < least {
			least, quiet = now, 0
		}
	}
	return least, err
}

// add adds a row of the memory of a process.
func (m *programs) add(what string, p *process, bytes uint64, against string, theirs, most uint64, ok bool) error {
	peak, err := p.status("VmHWM")
	if err != nil {
		return err
	}
	r := row{what: "programs: " + what, ours: fmt.Sprintf("%.0f MB, peak %.0f, ready in %s", float64(bytes)/1e6, float64(peak)/1e6, short(p.ready)), ok: ok}
	if against != "" {
		r.against, r.theirs, r.ratio = against, fmt.Sprintf("%.0f MB", float64(theirs)/1e6), fmt.Sprintf("%+.0f MB", (float64(bytes)-float64(theirs))/1e6)
	}
	if most != 0 {
		r.target = fmt.Sprintf("<= %d MB", most/1e6)
		r.ok = ok && bytes <= most
	}
	m.b.rows = append(m.b.rows, r)
	return nil
}

// hook is a running webhook whose policies are in a file.
type hook struct {
	*process
	m         *programs
	url       string
	policies  int
	different bool
}

// module returns the file of a policy's module.
func (h *hook) module(i int) string {
	if !h.different {
		i = 0
	}
	return filepath.Join(h.m.dir, fmt.Sprintf("policy-%d.wasm", i))
}

// put replaces the module of a policy by one of its versions.
func (h *hook) put(i, version int) error {
	module, err := os.ReadFile(h.m.policy)
	if err != nil {
		return err
	}
	module = append(module, 0, 5, 1, 'n', byte(i), byte(i>>8), byte(version)) // A custom section.
	return errors.Join(os.WriteFile(h.module(i)+".next", module, 0o600), os.Rename(h.module(i)+".next", h.module(i)))
}

// modules is the number of different modules.
func (h *hook) modules() int {
	if h.different {
		return h.policies
	}
	return min(h.policies, 1)
}

// start starts the webhook with all policies, and asks each once.
func (h *hook) start(binary, cache string) error {
	for i := range h.modules() {
		if err := h.put(i, 0); err != nil {
			return err
		}
	}
	text := "plugins:"
	if h.policies == 0 {
		text += " []"
	}
	for i := range h.policies {
		text += fmt.Sprintf("\n- {name: p%d, module: {file: %s, follow: true}, guestConfig: {labels: [app]}}", i, h.module(i))
	}
	config := filepath.Join(h.m.dir, "webhook.yaml")
	if err := os.WriteFile(config, []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	h.url = "https://" + addr
	h.process, err = h.m.start(binary, []string{
		"-addr", addr, "-cert", filepath.Join(h.m.dir, "tls.crt"), "-key", filepath.Join(h.m.dir, "tls.key"), "-config", config, "-cache-dir", cache,
		"-api-token-file", filepath.Join(h.m.dir, "token"), "-drain-delay", "1ms", "-log-level", "error",
	}, func() error { _, err := h.get("/readyz"); return err })
	if err != nil {
		return err
	}
	return h.ask()
}

// ask sends a review to all policies.
func (h *hook) ask() error {
	body, err := review(pod())
	if err != nil {
		return err
	}
	resp, err := h.m.client.Post(h.url+"/validate", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
		err = fmt.Errorf("the webhook answers %s: %.500s", resp.Status, text)
	}
	return err
}

// inUse returns the resident memory once it has settled and all policies were asked again: what a
// webhook has given back and needs for its work counts.
func (h *hook) inUse() (uint64, error) {
	if _, err := h.settled(); err != nil {
		return 0, err
	}
	for range 20 {
		if err := h.ask(); err != nil {
			return 0, err
		}
	}
	return h.status("VmRSS")
}

func (h *hook) get(path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(h.m.b.ctx, http.MethodGet, h.url+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer secret")
	resp, err := h.m.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.500s", path, resp.Status, text)
	}
	return text, err
}

// digests returns the modules in service.
func (h *hook) digests() ([]string, error) {
	text, err := h.get("/plugins")
	if err != nil {
		return nil, err
	}
	var list struct {
		Plugins []struct{ Digest, State string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	var digests []string
	for _, p := range list.Plugins {
		digests = append(digests, p.Digest)
	}
	return digests, nil
}

// swap replaces the modules of all policies, and waits until the new ones serve.
func (h *hook) swap(version int) error {
	before, err := h.digests()
	if err != nil {
		return err
	}
	for i := range h.modules() {
		if err := h.put(i, version); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now, err := h.digests()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(now, func(digest string) bool { return slices.Contains(before, digest) }) {
			return h.ask()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d policies are not swapped after 10 minutes", h.policies)
		}
	}
}

// webhooks measures the webhook with policies of one module and of different ones.
func (m *programs) webhooks() error {
	binary, err := m.build("../../cmd/kubewasm-webhook", ".")
	if err != nil {
		return err
	}
	empty := &hook{m: m}
	if err := empty.start(binary, filepath.Join(m.dir, "empty")); err != nil {
		return err
	}
	without, err := empty.settled()
	if err = errors.Join(err, empty.stop()); err != nil {
		return err
	}
	var errs []error
	for _, kind := range []struct {
		different bool
		name      string
		numbers   []int
		most      uint64
	}{{false, "policies of one Go module", []int{1, 10, 50, 100}, mostOfOne}, {true, "different Go policies", []int{1, 10, 50, 100}, mostOfDifferent}} {
		for _, n := range kind.numbers {
			most := uint64(0)
			if n == 50 {
				most = kind.most
			}
			cache := filepath.Join(m.dir, fmt.Sprintf("cache-%t-%d", kind.different, n))
			for _, start := range []string{"cold", "warm"} {
				what := fmt.Sprintf("webhook, %d %s, %s", n, kind.name, start)
				h := &hook{m: m, policies: n, different: kind.different}
				if err := h.start(binary, cache); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				bytes, err := h.inUse()
				if err == nil {
					err = m.add(what, h.process, bytes, "without policies", without, most, true)
				}
				if err == nil && n == 50 && start == "warm" {
					err = m.later(h, kind.name, bytes, most)
				}
				errs = append(errs, err, h.stop())
			}
		}
	}
	return errors.Join(errs...)
}

// later measures a webhook after swaps of each policy between two versions, and after idle time.
func (m *programs) later(h *hook, kind string, before, most uint64) error {
	swaps := 0
	for _, n := range []int{5, 50} {
		for ; swaps < n; swaps++ {
			if err := h.swap(1 - swaps%2); err != nil {
				return err
			}
		}
		bytes, err := h.inUse()
		if err != nil {
			return err
		}
		growth := float64(bytes) / float64(before)
		if err := m.add(fmt.Sprintf("webhook, %d %s, after %d swaps of each between two versions (at most 1.1x)", h.policies, kind, n), h.process, bytes, "before", before, most, growth <= mostGrowth); err != nil {
			return err
		}
	}
	time.Sleep(m.b.idle)
	bytes, err := h.status("VmRSS")
	if err != nil {
		return err
	}
	return m.add(fmt.Sprintf("webhook, %d %s, idle for %s after that", h.policies, kind, m.b.idle), h.process, bytes, "before the swaps", before, most, true)
}

// gauges are the metrics that must stay flat.
var gauges = []string{"go_goroutines", "process_open_fds", "kubewasm_memory_mappings", "go_memstats_heap_inuse_bytes", "process_resident_memory_bytes"}

// random sends random reviews to a webhook for as long as the soak takes, and compares the third
// quarter with the last.
func (m *programs) random() error {
	binary, err := m.build("../../cmd/kubewasm-webhook", ".")
	if err != nil {
		return err
	}
	h := &hook{m: m, policies: 10, different: true}
	if err := h.start(binary, filepath.Join(m.dir, "cache-random")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.b.ctx, m.b.soak)
	defer cancel()
	var working sync.WaitGroup
	var mu sync.Mutex
	var wrong []error // Of requests that got no answer.
	sent, longest := 0, time.Duration(0)
	for client := range 8 {
		rng := mathrand.New(mathrand.NewPCG(uint64(client), 1))
		working.Go(func() {
			for ctx.Err() == nil {
				path, review, begun := []string{"validate", "mutate"}[rng.IntN(2)], randomReview(rng), time.Now()
				resp, err := h.m.client.Post(h.url+"/"+path, "application/json", bytes.NewReader(review))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				took := time.Since(begun)
				mu.Lock()
				sent++
				longest = max(longest, took)
				if err != nil && ctx.Err() == nil {
					wrong = append(wrong, fmt.Errorf("request %d, %d bytes to %s, after %s: %w", sent, len(review), path, short(took), err))
				}
				mu.Unlock()
			}
		})
	}
	samples := map[string][]float64{}
	for tick := time.NewTicker(max(m.b.soak/80, 100*time.Millisecond)); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
			text, err := h.get("/metrics")
			if err != nil {
				mu.Lock()
				wrong = append(wrong, err)
				mu.Unlock()
			}
			for line := range strings.Lines(string(text)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				if slices.Contains(gauges, name) {
					if v, err := strconv.ParseFloat(value, 64); err == nil {
						samples[name] = append(samples[name], v)
					}
				}
			}
		}
	}
	working.Wait()
	if err := h.stop(); err != nil {
		return err
	}
	if len(wrong) != 0 {
		return fmt.Errorf("%d of %d requests got no answer: %w", len(wrong), sent, errors.Join(wrong[:min(len(wrong), 20)]...))
	}
	m.b.rows = append(m.b.rows, row{
		what: fmt.Sprintf("programs: webhook, longest answer to %d random reviews", sent), ours: short(longest),
		target: fmt.Sprintf("<= %s", mostAnswer), ok: longest <= mostAnswer,
	})
	for _, name := range gauges {
		all := samples[name]
		if len(all) < 8 {
			return fmt.Errorf("%d samples of %s: is it a metric?", len(all), name)
		}
		third, last := median(slices.Clone(all[len(all)/2:len(all)*3/4])), median(slices.Clone(all[len(all)*3/4:]))
		m.b.add(fmt.Sprintf("programs: webhook, %s of %d random reviews: %s", m.b.soak, sent, name), fmt.Sprintf("%.4g", last), "a quarter before", fmt.Sprintf("%.4g", third), last/third, "<= 1.1x", last <= third*1.1)
	}
	return nil
}

// randomReview returns a review with random contents, or something near one.
func randomReview(rng *mathrand.Rand) []byte {
	var value func(depth int) any
	value = func(depth int) any {
		switch n := rng.IntN(8); {
		case n < 3 && depth < 6:
			object := map[string]any{}
			for range rng.IntN(8) {
				object[[]string{"metadata", "labels", "app", "spec", "containers", "name", "image", strings.Repeat("k", rng.IntN(300))}[rng.IntN(8)]] = value(depth + 1)
			}
			return object
		case n < 5 && depth < 6:
			list := make([]any, rng.IntN(20))
			for i := range list {
				list[i] = value(depth + 1)
			}
			return list
		case n == 5:
			return rng.NormFloat64() * 1e18
		case n == 6:
			return nil
		}
		return strings.Repeat("é\x00text", rng.IntN(1+1<<rng.IntN(12)))
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid": strconv.Itoa(rng.Int()), "operation": []string{"CREATE", "UPDATE", "DELETE", "CONNECT", "NONE"}[rng.IntN(5)],
			"kind": map[string]any{"version": "v1", "kind": "Pod"}, "resource": map[string]any{"version": "v1", "resource": "pods"},
			"namespace": "n", "name": "p", "object": value(0), "oldObject": value(0),
		},
	})
	if err != nil {
		panic(err) // Floats are finite, and keys are texts.
	}
	for range rng.IntN(3) { // Damages some.
		text[rng.IntN(len(text))] = byte(rng.IntN(256))
	}
	return text[:len(text)-rng.IntN(2)*rng.IntN(len(text))]
}

// agents measures the node agent with four guests.
func (m *programs) agents() error {
	binary, err := m.build("../../cmd/kubewasm-agent", ".")
	if err != nil {
		return err
	}
	addr, err := freeAddress()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("cacheDir: %s\nhttp: {address: %q}\ncgroup: {driver: cgroupfs}\nnri: {socket: %s}\nplugins:\n", filepath.Join(m.dir, "agent-cache"), addr, filepath.Join(m.dir, "nri.sock"))
	without := text + "- {name: one, module: {file: " + filepath.Join(m.dir, "none.wasm") + "}, owns: [cpuset_cpus]}\n"
	for _, p := range []struct{ name, settings string }{
		{"batch-resource", ""}, {"cpu-normalization", ""}, {"cpuset", ""}, {"group-identity", ""},
	} {
		file, err := guestbuild.Build(m.b.ctx, source("../../examples/hooks/"+p.name))
		if err != nil {
			return err
		}
		text += fmt.Sprintf("- {name: %s, module: {file: %s}%s}\n", p.name, file, p.settings)
	}
	ready := func() error {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	measure := func(text string) (*process, uint64, error) {
		file := filepath.Join(m.dir, "agent.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, 0, err
		}
		p, err := m.start(binary, []string{"-config", file}, ready)
		if err != nil {
			return nil, 0, err
		}
		bytes, err := p.settled()
		return p, bytes, err
	}
	p, none, err := measure(without)
	if err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	for _, start := range []string{"cold", "warm"} {
		p, bytes, err := measure(text)
		if err == nil {
			err = m.add("node agent, 4 different Go guests, "+start, p, bytes, "with one that is not there", none, mostOfAgent, true)
		}
		if err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return err
		}
	}
	return nil
}

// schedulers compares the scheduler without plugins with kube-scheduler of the same release. The
// API server is away, so both have what they begin with.
func (m *programs) schedulers() error {
	ours, err := m.build("../../cmd/kubewasm-scheduler", ".")
	if err != nil {
		return err
	}
	theirs, err := m.build("../../cmd/kubewasm-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler")
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(m.dir, "kubeconfig")
	err = os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}\n"), 0o600)
	if err != nil {
		return err
	}
	var all [2]*process
	var bytes [2]uint64
	for i, binary := range []string{theirs, ours} {
		addr, err := freeAddress()
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // It makes a certificate of its own.
		all[i], err = m.start(binary, []string{"--kubeconfig", kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port", port, "--cert-dir", filepath.Join(m.dir, "certs")}, func() error {
			resp, err := insecure.Get("https://" + addr + "/livez")
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
		if err != nil {
			return err
		}
		if bytes[i], err = all[i].settled(); err != nil {
			return err
		}
	}
	err = m.add("scheduler without plugins", all[1], bytes[1], "kube-scheduler", bytes[0], bytes[0]+mostOfScheduler, true)
	return errors.Join(err, all[0].stop(), all[1].stop())
}

// freeAddress returns an address that no process listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// keyPair writes a certificate, its key and a token, and returns a client that trusts it.
func keyPair(dir string) (*http.Client, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "token": []byte("secret\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 16}}, nil
}
