package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// testTransport returns a transport whose clock advances when it waits, for a server that
// answers by a function of the number of the request.
func testTransport(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) (tr *transport, url string, waited *[]time.Duration) {
	t.Helper()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		answer(w, r, requests)
	}))
	t.Cleanup(server.Close)
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	waited = new([]time.Duration)
	hostport := strings.TrimPrefix(server.URL, "http://")
	tr = &transport{
		hosts: func() map[string]*endpoint {
			return map[string]*endpoint{hostport: {plainHTTP: true, transport: http.DefaultTransport}}
		},
		now: func() time.Time { return now },
		sleep: func(_ context.Context, d time.Duration) error {
			*waited, now = append(*waited, d), now.Add(d)
			return nil
		},
		pause: map[string]time.Time{},
	}
	return tr, server.URL, waited
}

func get(ctx context.Context, tr http.RoundTripper, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: tr, CheckRedirect: checkRedirect}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestTransportRepeatsWhatMaySucceed(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusRequestTimeout: 3, http.StatusTooManyRequests: 3, http.StatusInternalServerError: 3, http.StatusBadGateway: 3,
		http.StatusServiceUnavailable: 3, http.StatusGatewayTimeout: 3,
		http.StatusNotFound: 1, http.StatusUnauthorized: 1, http.StatusForbidden: 1, http.StatusNotImplemented: 1,
	} {
		sent := 0
		tr, url, waited := testTransport(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			if sent = n; n < 3 {
				w.WriteHeader(status)
			}
		})
		if _, err := get(t.Context(), tr, url); err != nil || sent != want || len(*waited) != want-1 {
			t.Errorf("%d: %d requests, want %d; waited %v; %v", status, sent, want, *waited, err)
		}
	}
}

func TestTransportGivesUp(t *testing.T) {
	sent := 0
	tr, url, waited := testTransport(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		sent = n
		w.WriteHeader(http.StatusBadGateway)
	})
	status, err := get(t.Context(), tr, url)
	if status != http.StatusBadGateway || err != nil || sent != attempts {
		t.Errorf("got %d, %v after %d requests, want 502 after %d", status, err, sent, attempts)
	}
	for i, d := range *waited {
		if least, most := firstBackoff<<i*9/10, firstBackoff<<i*11/10; d < least || d > most {
			t.Errorf("wait %d is %s, want %s to %s", i, d, least, most)
		}
	}
}

func TestTransportWaitsAsLongAsTheRegistryAsks(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "Sun, 01 Nov 2026 00:00:30 GMT": 30 * time.Second, "0": firstBackoff, "Sat, 31 Oct 2026 00:00:00 GMT": firstBackoff,
	} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			tr, url, waited := testTransport(t, func(w http.ResponseWriter, _ *http.Request, n int) {
				if n == 1 {
					w.Header().Set("Retry-After", value)
					w.WriteHeader(status)
				}
			})
			got, err := get(t.Context(), tr, url)
			if got != http.StatusOK || err != nil || len(*waited) != 1 || (*waited)[0] != want {
				t.Errorf("Retry-After %q: got %d, %v, waited %v, want %s", value, got, err, *waited, want)
			}
		}
	}
}

func TestTransportLeavesARegistryAloneThatAsksForIt(t *testing.T) {
	sent := 0
	tr, url, waited := testTransport(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		sent = n
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	deadline, _ := ctx.Deadline()
	tr.now = func() time.Time { return deadline.Add(-time.Minute) } // A minute is left.
	if status, err := get(ctx, tr, url); status != http.StatusTooManyRequests || err != nil || sent != 1 || len(*waited) != 0 {
		t.Errorf("got %d, %v after %d requests and %v, want the answer at once", status, err, sent, *waited)
	}
	var pause *pauseError
	if _, err := get(ctx, tr, url); !errors.As(err, &pause) || sent != 1 {
		t.Errorf("the next request: %v, want a pauseError and no request", err)
	} else if want := deadline.Add(9 * time.Minute); !pause.Until.Equal(want) || !away(err) {
		t.Errorf("the pause is until %s, want %s, and it means that the registry is away", pause.Until, want)
	}
	tr.now = func() time.Time { return deadline.Add(10 * time.Minute) }
	if _, err := get(t.Context(), tr, url); err != nil || sent == 1 {
		t.Errorf("after the pause: %v", err)
	}
}

func TestTransportRepeatsBodies(t *testing.T) {
	var bodies []string
	tr, url, _ := testTransport(t, func(w http.ResponseWriter, r *http.Request, n int) {
		body, _ := io.ReadAll(r.Body)
		if bodies = append(bodies, string(body)); n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	resp, err := (&http.Client{Transport: tr}).Post(url, "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(bodies) != 2 || bodies[0] != "body" || bodies[1] != "body" {
		t.Errorf("bodies are %q", bodies)
	}
}

func TestPlainHTTPIsByNameOnly(t *testing.T) {
	var to string
	tr, url, _ := testTransport(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if to != "" && r.URL.Path == "/" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	})
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if _, err := get(t.Context(), tr, other.URL); err == nil || !strings.Contains(err.Error(), "plain http to 127.0.0.1") {
		t.Errorf("plain http to a host without plainHTTP: %v", err)
	}
	to = other.URL + "/blob?signature=secret"
	if _, err := get(t.Context(), tr, url); err == nil || !strings.Contains(err.Error(), "plain http to 127.0.0.1") {
		t.Errorf("a redirect to plain http: %v", err)
	} else if text := withoutURL(err).Error(); strings.Contains(text, "secret") {
		t.Errorf("the error has the query of a URL: %s", text)
	}
	to = url + "/blob"
	if status, err := get(t.Context(), tr, url); status != http.StatusOK || err != nil {
		t.Errorf("a redirect to the same host: %d, %v", status, err)
	}
	to = url + "/"
	if _, err := get(t.Context(), tr, url); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d redirects", maxRedirects)) {
		t.Errorf("redirects without end: %v", err)
	}
}

// A redirect and a reference spell a host as they like.
func TestTransportKnowsHostsHoweverTheyAreSpelt(t *testing.T) {
	tr, url, _ := testTransport(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusTooManyRequests) })
	port := url[strings.LastIndex(url, ":"):]
	tr.hosts = func() map[string]*endpoint {
		return map[string]*endpoint{"localhost" + port: {plainHTTP: true, transport: http.DefaultTransport}}
	}
	for _, host := range []string{"localhost", "LOCALHOST"} {
		if status, err := get(t.Context(), tr, "http://"+host+port); status != http.StatusTooManyRequests || err != nil {
			t.Errorf("%s: %d, %v", host, status, err)
		}
	}
	if _, err := get(t.Context(), tr, "http://2130706433/"); err == nil || !strings.Contains(err.Error(), "want an IPv4 address") {
		t.Errorf("an address as one number: %v, want an error", err)
	}
}

func TestOneChallengeIsChosen(t *testing.T) {
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"none":                           {nil, ""},
		"one that oras reads":            {[]string{`Bearer realm="https://a/t",service="s"`}, `Bearer realm="https://a/t",service="s"`},
		"Bearer after Basic":             {[]string{`Basic realm="a"`, `Bearer realm="https://a/t"`}, `Bearer realm="https://a/t"`},
		"in one header":                  {[]string{`Basic realm="a, Bearer realm=x", Bearer realm="https://a/t", scope="repository:z:pull,push"`}, `Bearer realm="https://a/t",scope="repository:z:pull,push"`},
		"a quote within quotes":          {[]string{`Digest nonce="a\", b", Basic realm="x"`}, `Basic realm="x"`},
		"the first Basic of two":         {[]string{`Basic realm="x"`, `Basic realm="y"`}, `Basic realm="x"`},
		"data of another scheme":         {[]string{"Negotiate YII=, NTLM, Basic"}, "Basic"},
		"Bearer without a realm":         {[]string{`Bearer error="invalid_token", Basic realm="x"`}, `Basic realm="x"`},
		"names in capitals, with spaces": {[]string{`BEARER Realm = "https://a/t" , SERVICE = s`}, `BEARER realm= "https://a/t",service= s`},
		"a parameter of nothing":         {[]string{`realm="x", Basic realm="y"`}, `Basic realm="y"`},
		"none that oras reads":           {[]string{"Negotiate", "NTLM"}, "Negotiate"},
		"no text":                        {[]string{"", ",,", "=", `"`}, ""},
		"a list that has no end":         {[]string{`Bearer realm="https://a/t`}, `Bearer realm="https://a/t`},
	} {
		header := http.Header{"Www-Authenticate": tt.headers}
		chooseChallenge(header)
		if got := header.Get("WWW-Authenticate"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
