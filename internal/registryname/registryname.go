// Package registryname knows the one spelling of a registry's host and of a repository, by which
// rules, credentials, mirrors and caches find them.
package registryname

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Docker is the name of Docker's registry in references.
const Docker = "docker.io"

// DockerHost is the host that serves it.
const DockerHost = "registry-1.docker.io"

// dockerNames are all hosts that serve Docker's registry, and the one in configurations of docker.
var dockerNames = map[string]bool{Docker: true, DockerHost: true, "index.docker.io": true, "registry.hub.docker.com": true}

// The longest name that DNS has, and the port of https, which is no part of a name.
const (
	maxHostBytes = 253
	httpsPort    = 443
)

var (
	hostRE    = regexp.MustCompile(`^[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*$`)
	numericRE = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)
)

// Host returns the one spelling of HOST[:PORT]: in lower case, without a dot at the end, without
// port 443 and leading zeros, addresses in their shortest form, and docker.io for each of Docker's
// names. Names that a resolver would map to others are errors: those that are not ASCII, and
// numbers that are no address in four decimal parts.
func Host(text string) (string, error) {
	name, port := text, ""
	colon := strings.LastIndexByte(text, ':')
	hasPort := colon > strings.LastIndexByte(text, ']')
	if hasPort {
		name, port = text[:colon], text[colon+1:]
	}
	name, err := hostName(name)
	if err != nil {
		return "", err
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", fmt.Errorf("port is %.20q, want 1 to 65535", port)
		}
		if n != httpsPort {
			return name + ":" + strconv.FormatUint(n, 10), nil
		}
	}
	if dockerNames[name] {
		return Docker, nil
	}
	return name, nil
}

// hostName returns the spelling of a host without a port.
func hostName(name string) (string, error) {
	if inner, ok := strings.CutPrefix(name, "["); ok {
		address, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !strings.HasSuffix(inner, "]") || address.Zone() != "" || !address.Is6() {
			return "", fmt.Errorf("%.60q is no IPv6 address in brackets", name)
		}
		if address.Is4In6() {
			return address.Unmap().String(), nil
		}
		return "[" + address.String() + "]", nil
	}
	if name = lower(strings.TrimSuffix(name, ".")); len(name) > maxHostBytes || !hostRE.MatchString(name) {
		return "", errors.New("want a name of ASCII letters, digits, dots and hyphens")
	}
	if numericRE.MatchString(name) {
		if _, err := netip.ParseAddr(name); err != nil {
			return "", errors.New("want an IPv4 address in four decimal parts")
		}
	}
	return name, nil
}

// lower is for ASCII alone: letters elsewhere have these as their lower case.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Named reports whether the first part of a name is a registry rather than a part of a repository:
// it has a dot or a port, or is localhost.
func Named(host string) bool {
	return strings.ContainsAny(host, ".:") || lower(host) == "localhost"
}

// Repository returns the path of a repository in a registry, whose host has its one spelling:
// "busybox" of docker.io is "library/busybox".
func Repository(host, path string) string {
	if host == Docker && path != "" && path != "*" && !strings.Contains(path, "/") {
		return "library/" + path
	}
	return path
}

// Pattern returns the spelling of a pattern REGISTRY/REPOSITORY or REGISTRY/…/*, and * as it is.
func Pattern(pattern string) (string, error) {
	if pattern == "*" {
		return pattern, nil
	}
	host, path, ok := strings.Cut(pattern, "/")
	if !ok || path == "" || !Named(host) {
		return "", errors.New("want a registry, a slash and a repository")
	}
	host, err := Host(host)
	if err != nil {
		return "", fmt.Errorf("registry: %w", err)
	}
	return host + "/" + Repository(host, path), nil
}
