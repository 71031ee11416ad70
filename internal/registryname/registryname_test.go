package registryname

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestHostsHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"ghcr.io": "ghcr.io", "GHCR.IO": "ghcr.io", "ghcr.io.": "ghcr.io", "ghcr.io:443": "ghcr.io", "GhCr.Io.:0443": "ghcr.io",
		"ghcr.io:5000": "ghcr.io:5000", "ghcr.io:05000": "ghcr.io:5000", "ghcr.io:80": "ghcr.io:80", "localhost": "localhost",
		"docker.io": "docker.io", "index.docker.io": "docker.io", "registry-1.docker.io": "docker.io", "Registry.Hub.Docker.com:443": "docker.io",
		"docker.io:5000": "docker.io:5000", "my_registry:5000": "my_registry:5000", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"127.0.0.1:5000": "127.0.0.1:5000", "[::1]:5000": "[::1]:5000", "[0:0:0::1]": "[::1]", "[::FFFF:127.0.0.1]:443": "127.0.0.1",
		"[2001:DB8::1]": "[2001:db8::1]",
	} {
		got, err := Host(text)
		if got != want || err != nil {
			t.Errorf("Host(%q) is %q, %v, want %q", text, got, err, want)
		}
		if again, err := Host(got); again != got || err != nil {
			t.Errorf("Host(%q) is %q, %v, and the same was wanted", got, again, err)
		}
	}
}

func TestHostsOfSeveralMeaningsAreRefused(t *testing.T) {
	for _, text := range []string{
		"", ".", "ghcr.io..", "ghcr..io", "ghcr.io:", "ghcr.io:0", "ghcr.io:65536", "ghcr.io:x", "ghcr.io:+5", "ghcr.io:443:443", "ghcr .io", "-ghcr.io",
		"%67hcr.io", "ｇhcr.io", "ghcr。io", "ghcr.io\u200b", "\u212a8s.example", // A Kelvin sign, whose lower case is k.
		"127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "127.0.0.01", "127.0.0.1.5", "a.0x", "[::1", "::1", "[127.0.0.1]", "[fe80::1%eth0]",
		"user@ghcr.io", "ghcr.io/x", "ghcr.io?x", "ghcr.io#x", strings.Repeat("a", 254),
	} {
		if got, err := Host(text); err == nil {
			t.Errorf("Host(%q) is %q, want an error", text, got)
		}
	}
}

func TestRepositoriesHaveOneSpelling(t *testing.T) {
	for pattern, want := range map[string]string{
		"*": "*", "GHCR.IO./acme/*": "ghcr.io/acme/*", "ghcr.io:443/acme/zone": "ghcr.io/acme/zone",
		"index.docker.io/busybox": "docker.io/library/busybox", "docker.io/*": "docker.io/*", "docker.io/acme/zone": "docker.io/acme/zone",
		"localhost/zone": "localhost/zone",
	} {
		if got, err := Pattern(pattern); got != want || err != nil {
			t.Errorf("Pattern(%q) is %q, %v, want %q", pattern, got, err, want)
		}
	}
	for _, pattern := range []string{"", "acme/*", "ghcr.io", "ghcr.io/", "ghcr.io:x/acme/*"} {
		if got, err := Pattern(pattern); err == nil {
			t.Errorf("Pattern(%q) is %q, want an error", pattern, got)
		}
	}
}

// FuzzHost holds that a spelling stays what it is, and that a request to it goes to the host that
// it says.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"GHCR.IO.:0443", "[::ffff:127.0.0.1]:5000", "registry-1.docker.io", "127.0.0.1", "ｇhcr.io", "a_b:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := Host(text)
		if err != nil {
			return
		}
		if again, err := Host(host); again != host || err != nil {
			t.Fatalf("Host(%q) is %q, and of that %q, %v", text, host, again, err)
		}
		for _, variant := range []string{strings.ToUpper(text), strings.ToLower(text)} {
			if same, err := Host(variant); same != host || err != nil {
				t.Fatalf("Host(%q) is %q, and of %q %q, %v", text, host, variant, same, err)
			}
		}
		u, err := url.Parse("https://" + host + "/v2/")
		if err != nil || u.Host != host || u.User != nil || u.Path != "/v2/" {
			t.Fatalf("Host(%q) is %q, which is no host of a URL: %v, %v", text, host, u, err)
		}
		req, err := http.NewRequest(http.MethodGet, u.String(), nil)
		if err != nil || req.Host != host {
			t.Fatalf("Host(%q) is %q, and a request goes to %v, %v", text, host, req, err)
		}
	})
}
