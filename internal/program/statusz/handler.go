// Package statusz serves the state of a program at /statusz, as Kubernetes' components do by
// KEP-4827, with its plugins: in text, in JSON, and in HTML without scripts for a browser. It also
// writes the reports of commands in HTML.
//
// The media types are
//
//	text/plain                                                without Accept, and for */*
//	text/html
//	application/json                                          the kind Status of this package
//	application/json;as=Statusz;g=kubewasm.dev;v=v1alpha1     the same
//	application/json;as=Statusz;g=config.k8s.io;v=v1beta1     the members of KEP-4827 alone
//
// and ?section= chooses a section of the text: plugins, problems, open, slow, refusals, traps,
// shadows or recordings.
package statusz

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Path is the path of the page.
const Path = "/statusz"

// media is a media type of an answer.
type media int

const (
	plain media = iota
	page
	structured
	structuredKEP
	unacceptable
)

// negotiate returns the media type for an Accept header: the one with the highest quality, and the
// first of several.
func negotiate(accept string) media {
	if strings.TrimSpace(accept) == "" {
		return plain
	}
	best, quality := unacceptable, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || q < 0 || q > 1 {
				continue
			}
		}
		of := unacceptable
		switch name {
		case "text/plain", "text/*", "*/*":
			of = plain
		case "text/html", "application/xhtml+xml":
			of = page
		case "application/json", "application/*":
			of = ofKind(params["as"], params["g"], params["v"])
		}
		if of != unacceptable && q > quality {
			best, quality = of, q
		}
	}
	return best
}

// ofKind returns the media type of a kind; an empty one is ours.
func ofKind(as, g, v string) media {
	switch {
	case as+g+v == "", as == kind && g == group && v == version:
		return structured
	case as == kind && g == kepGroup && v == kepVersion:
		return structuredKEP
	}
	return unacceptable
}

const acceptable = "text/plain, text/html, application/json, application/json;as=" + kind + ";g=" + group + ";v=" + version + ", application/json;as=" + kind + ";g=" + kepGroup + ";v=" + kepVersion

// sections are the sections of the text.
var sections = []string{"plugins", "problems", "open", "slow", "refusals", "traps", "shadows", "recordings"}

// ServeHTTP answers GET and HEAD.
func (c *Config) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		return
	}
	of, section := negotiate(strings.Join(r.Header.Values("Accept"), ",")), r.URL.Query().Get("section")
	if of == unacceptable {
		http.Error(w, "acceptable are "+acceptable, http.StatusNotAcceptable)
		return
	}
	if section != "" && !slices.Contains(sections, section) {
		http.Error(w, "section is none of "+strings.Join(sections, ", "), http.StatusBadRequest)
		return
	}
	s := c.status(c.Private == nil || c.Private(r))
	var b bytes.Buffer
	var err error
	contentType := "application/json"
	switch of {
	case plain:
		contentType = "text/plain; charset=utf-8"
		err = s.writeText(&b, section)
	case page:
		contentType = "text/html; charset=utf-8"
		header.Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
		header.Set("Referrer-Policy", "no-referrer")
		err = s.writePage(&b)
	case structured:
		contentType += ";as=" + kind + ";g=" + group + ";v=" + version
		err = writeJSON(&b, s)
	case structuredKEP:
		contentType += ";as=" + kind + ";g=" + kepGroup + ";v=" + kepVersion
		s.kep.APIVersion = kepGroup + "/" + kepVersion
		err = writeJSON(&b, s.kep)
	}
	if err != nil {
		http.Error(w, "write the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = w.Write(b.Bytes()) // If the client is gone, nobody reads the answer.
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // It would be six times as long.
	return e.Encode(v)
}

// Near reports whether a client is in the network of this process, such as kubectl port-forward.
func Near(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	ip := remote.Addr().Unmap()
	return err == nil && local != nil && (ip.IsLoopback() || ip == local.AddrPort().Addr().Unmap())
}

// Local reports whether a client is near and asks for an address or localhost: not a browser that a
// page has sent here by a name of its own.
func Local(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return Near(r) && (err == nil || host == "localhost")
}
