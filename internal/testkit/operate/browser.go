package operate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// Page is a page as a browser shows it.
type Page struct {
	// Width and Height are those of the content, in CSS pixels. Text is the visible text.
	Width, Height float64
	Text          string
	// Errors are the messages of the console and the requests that failed.
	Errors []string
	// PNG is a picture of the window.
	PNG []byte
}

// Browser is a running Chromium.
type Browser struct {
	t      testing.TB
	in     *os.File
	out    *bufio.Reader
	last   int
	events []event
}

// event is a message of the DevTools protocol.
type event struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// NewBrowser starts a browser, which ends with the test. Without Chromium the test is skipped, or fails if
// CI is set: its machines of amd64 have one.
func NewBrowser(t testing.TB) *Browser {
	t.Helper()
	if self.Emulated() {
		t.Skip("the browser is for another processor")
	}
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		if os.Getenv("CI") != "" && runtime.GOARCH == "amd64" {
			t.Fatal("there is no chromium")
		}
		t.Skip("there is no chromium")
	}
	b := &Browser{t: t}
	read, in, err := os.Pipe()
	out, write, err2 := os.Pipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	b.in, b.out = in, bufio.NewReaderSize(out, 1<<20)
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "--force-device-scale-factor=1", "about:blank")
	cmd.ExtraFiles = []*os.File{read, write} // 3 and 4, as the flag wants.
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	write.Close()
	t.Cleanup(func() {
		_, _ = b.send("", "Browser.close", nil)
		in.Close()
		ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer ended.Stop()
		_ = cmd.Wait()
		out.Close()
		if t.Failed() {
			t.Logf("chromium: %s", &stderr)
		}
	})
	return b
}

// send sends a command and returns its result. Events that come meanwhile are kept.
func (b *Browser) send(session, method string, params any) (json.RawMessage, error) {
	b.last++
	message := map[string]any{"id": b.last, "method": method}
	if session != "" {
		message["sessionId"] = session
	}
	if params != nil {
		message["params"] = params
	}
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return nil, err
	}
	for {
		e, err := b.next()
		switch {
		case err != nil:
			return nil, err
		case e.ID == 0:
			b.events = append(b.events, e)
		case e.ID == b.last && e.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, e.Error.Message)
		case e.ID == b.last:
			return e.Result, nil
		}
	}
}

func (b *Browser) next() (e event, err error) {
	text, err := b.out.ReadBytes(0)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(text[:len(text)-1], &e)
}

// Open opens a URL in a window of that many CSS pixels.
func (b *Browser) Open(url string, width, height int) *Page {
	b.t.Helper()
	return b.Run(url, width, height, "")
}

// Run opens a URL as Open does, but with scripts enabled, and evaluates script when it is loaded. The
// picture is taken when the promise that script returns is fulfilled; a promise that is rejected fails the test.
// An empty script is that of Open.
func (b *Browser) Run(url string, width, height int, script string) *Page {
	b.t.Helper()
	do := func(session, method string, params, result any) {
		b.t.Helper()
		text, err := b.send(session, method, params)
		if err == nil && result != nil {
			err = json.Unmarshal(text, result)
		}
		if err != nil {
			b.t.Fatalf("chromium: %v", err)
		}
	}
	var target struct{ TargetID, SessionID string }
	do("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	do("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	s := target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		do(s, domain+".enable", nil, nil)
	}
	do(s, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	do(s, "Emulation.setScriptExecutionDisabled", map[string]any{"value": script == ""}, nil)
	b.events = nil
	var navigated struct{ ErrorText string }
	do(s, "Page.navigate", map[string]any{"url": url}, &navigated)
	if navigated.ErrorText != "" {
		b.t.Fatalf("chromium: open %s: %s", url, navigated.ErrorText)
	}
	for !slices.ContainsFunc(b.events, func(e event) bool { return e.Method == "Page.loadEventFired" }) {
		e, err := b.next()
		if err != nil {
			b.t.Fatalf("chromium: %v", err)
		}
		b.events = append(b.events, e)
	}
	if script != "" {
		var ran struct{ ExceptionDetails json.RawMessage }
		do(s, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true}, &ran)
		if ran.ExceptionDetails != nil {
			b.t.Errorf("%s: the script failed: %s", url, ran.ExceptionDetails)
		}
	}
	p := new(Page)
	var metrics struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	do(s, "Page.getLayoutMetrics", nil, &metrics)
	p.Width, p.Height = metrics.CSSContentSize.Width, metrics.CSSContentSize.Height
	var text struct{ Result struct{ Value string } }
	do(s, "Runtime.evaluate", map[string]any{"expression": "document.documentElement.innerText"}, &text)
	p.Text = text.Result.Value
	var picture struct{ Data []byte }
	do(s, "Page.captureScreenshot", nil, &picture)
	p.PNG = picture.Data
	for _, e := range b.events {
		switch e.Method {
		case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed":
			p.Errors = append(p.Errors, string(e.Params))
		}
	}
	do("", "Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil)
	return p
}
