// Package operate holds the table of docs/operating.md about the pages of programs to the built
// programs.
package operate

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Client trusts every server.
var Client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// Start builds the program of the directory and runs it until the test ends. It waits until URL
// answers 200, and ends the test if the program ends first.
func Start(t *testing.T, url string, env []string, args ...string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), env...)
	out := new(output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("the program writes\n%s", out)
		}
	})
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := Client.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the program ends: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer 200", url)
		}
	}
}

var rowRE = regexp.MustCompile("(?m)^\\| (?:([^|]*) )?\\| ([a-z-]+) \\| `(curl [^`]*)` \\| `([^`]*)` \\|$")

// Ask runs the commands of a program's rows, with base in place of the documented address, and
// compares a line of the answer with the documented one, in which … stands for any text.
func Ask(t *testing.T, root, program, base string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no curl")
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`https?://localhost:\d+`)
	n := 0
	for _, row := range rowRE.FindAllStringSubmatch(string(text), -1) {
		if row[2] != program {
			continue
		}
		n++
		t.Run(row[3], func(t *testing.T) {
			command := address.ReplaceAllLiteralString(row[3], base)
			answer, err := exec.CommandContext(t.Context(), "sh", "-c", command).Output()
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			words := strings.Fields(regexp.QuoteMeta(row[4]))
			want := regexp.MustCompile(`(?m)^ *` + strings.ReplaceAll(strings.Join(words, ` +`), "…", `.*`) + ` *$`)
			if !want.Match(answer) {
				t.Errorf("%s\nanswers\n%s\nwithout the line %s", command, answer, want)
			}
		})
	}
	if n == 0 {
		t.Fatalf("docs/operating.md has no row about %s", program)
	}
}
