package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// policiesFlags are the flags of policies.
type policiesFlags struct {
	server, tokenFile, authority, certificate, key, settings string

	output *output
	from   *pullFlags
}

// policyVerbs are the verbs of policies, with the arguments after the verb.
var policyVerbs = []struct {
	name string
	// least and most are the minimum and maximum number of arguments.
	least, most int
	run         func(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error
}{
	{"list", 0, 0, listPolicies},
	{"load", 2, 2, loadPolicy},
	{"enable", 1, 1, changePolicy(http.MethodPost, "/enable")},
	{"disable", 1, 1, changePolicy(http.MethodPost, "/disable")},
	{"remove", 1, 1, changePolicy(http.MethodDelete, "")},
	{"versions", 1, 1, listVersions},
	{"rollback", 1, 2, rollBack},
	{"shadow", 1, 2, shadowPolicy},
	{"end", 1, 1, changePolicy(http.MethodDelete, "/shadow")},
	{"promote", 1, 1, changePolicy(http.MethodPost, "/promote")},
	{"break-glass", 1, 2, breakGlass},
}

// policies is a client of the management API of policies.
func policies(t *tool, flags *pflag.FlagSet) action {
	f := &policiesFlags{output: outputFlags(flags), from: t.pullFlags(flags)}
	flags.StringVarP(&f.server, "server", "s", os.Getenv("KUBEWASM_SERVER"), "")
	flags.StringVar(&f.tokenFile, "token-file", os.Getenv("KUBEWASM_TOKEN_FILE"), "")
	flags.StringVar(&f.authority, "certificate-authority", "", "")
	flags.StringVar(&f.certificate, "client-certificate", "", "")
	flags.StringVar(&f.key, "client-key", "", "")
	flags.StringVar(&f.settings, "settings", "", "")
	var names []string
	for _, v := range policyVerbs {
		names = append(names, v.name)
	}
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return &usageError{fmt.Errorf("policies: say what to do: %s", strings.Join(names, ", "))}
		}
		i := slices.Index(names, args[0])
		if i < 0 {
			return &usageError{fmt.Errorf("policies: %q is none of %s", args[0], strings.Join(names, ", "))}
		}
		verb, rest := policyVerbs[i], args[1:]
		if len(rest) < verb.least || len(rest) > verb.most {
			want := strconv.Itoa(verb.least)
			if verb.most != verb.least {
				want += " or " + strconv.Itoa(verb.most)
			}
			return &usageError{fmt.Errorf("policies %s: %d arguments, want %s", verb.name, len(rest), want)}
		}
		if f.settings != "" && verb.name != "load" && verb.name != "shadow" {
			return &usageError{fmt.Errorf("policies: --settings is for load and shadow")}
		}
		c, err := f.client()
		if err != nil {
			return err
		}
		return verb.run(ctx, t, f, c, rest)
	}
}

// policyClient sends requests to a server.
type policyClient struct {
	base  *url.URL
	http  *http.Client
	token string
}

const (
	// policyTimeout is longer than a server takes to load a policy.
	policyTimeout = 3 * time.Minute
	// dialTimeout is the longest wait for a replica, which may be gone from its address.
	dialTimeout = 10 * time.Second
	// maxAnswerBytes is the maximum length of a server's answer.
	maxAnswerBytes = 64 << 20
)

// client returns the client that the flags describe.
func (f *policiesFlags) client() (*policyClient, error) {
	if f.server == "" {
		return nil, &usageError{errors.New("policies: name the server with --server, as in https://localhost:8443, or in KUBEWASM_SERVER")}
	}
	base, err := url.Parse(f.server)
	if err == nil && (base.Scheme != "https" && base.Scheme != "http" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "") {
		err = errors.New("want https://HOST:PORT")
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("policies: --server: %w", err)}
	}
	c := &policyClient{base: base}
	if f.tokenFile != "" {
		if base.Scheme == "http" && !loopback(base.Hostname()) {
			return nil, &usageError{errors.New("policies: --server without TLS is for this machine alone: the token would be readable on the network")}
		}
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("policies: --token-file: %w", err)
		}
		if c.token = strings.TrimSpace(string(text)); c.token == "" {
			return nil, fmt.Errorf("policies: --token-file: %s is empty", f.tokenFile)
		}
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.authority != "" {
		text, err := os.ReadFile(f.authority)
		if err != nil {
			return nil, fmt.Errorf("policies: --certificate-authority: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("policies: --certificate-authority: %s has no certificate in PEM", f.authority)
		}
	}
	if f.certificate != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.certificate, f.key)
		if err != nil {
			return nil, fmt.Errorf("policies: --client-certificate and --client-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = cfg
	c.http = &http.Client{
		Transport: transport, Timeout: policyTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// do sends a request and reads the answer into answer.
func (c *policyClient) do(ctx context.Context, method string, path []string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	for i, part := range path {
		path[i] = url.PathEscape(part)
	}
	return c.send(ctx, method, c.base.JoinPath(append([]string{"plugins"}, path...)...), sent, answer)
}

// send sends a request and reads the answer into answer.
func (c *policyClient) send(ctx context.Context, method string, to *url.URL, body io.Reader, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return err
	}
	if req.ContentLength != 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", c.base.Host, err)
	case len(text) > maxAnswerBytes:
		return fmt.Errorf("the answer of %s has more than %d bytes", c.base.Host, maxAnswerBytes)
	case resp.StatusCode/100 != 2:
		var refusal struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(text, &refusal) != nil || refusal.Error == "" {
			return fmt.Errorf("%s answers %s to %s %s: is it a server with a management API?", c.base.Host, resp.Status, method, to.Path)
		}
		return fmt.Errorf("%s answers %s: %s", c.base.Host, resp.Status, refusal.Error)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the answer of %s is no JSON of this API: %w", c.base.Host, err)
	}
	return nil
}

// done prints a server's answer to a change.
func (f *policiesFlags) done(t *tool, name string, answer map[string]string) error {
	return f.output.print(t, result{value: answer, text: func(w io.Writer) error {
		text := fmt.Sprintf("policy %q: %s", name, answer["status"])
		if digest := answer["digest"]; digest != "" {
			text += fmt.Sprintf(" to %s, sha256 %s", cmp.Or(answer["version"], "a version without a name"), digest)
		}
		_, err := foreign.Fprintf(w, "%s\n", text)
		return err
	}})
}

// changePolicy returns a verb that needs only the name of the policy.
func changePolicy(method, path string) func(context.Context, *tool, *policiesFlags, *policyClient, []string) error {
	return func(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
		to := []string{args[0]}
		if path != "" {
			to = append(to, strings.TrimPrefix(path, "/"))
		}
		var answer map[string]string
		if err := c.do(ctx, method, to, nil, &answer); err != nil {
			return err
		}
		return f.done(t, args[0], answer)
	}
}

func listPolicies(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, _ []string) error {
	var answer struct {
		Plugins []manage.Info `json:"plugins"`
	}
	if err := c.do(ctx, http.MethodGet, nil, nil, &answer); err != nil {
		return err
	}
	return f.output.print(t, result{value: answer.Plugins, text: func(w io.Writer) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tVERSION\tSTATE\tMODE\tORIGIN\tLOADED\tSHA256")
		for _, p := range answer.Plugins {
			foreign.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%.12s\n", p.Name, p.Version, p.State, p.Mode, p.Origin, moment(p.LoadedAt), p.Digest)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, p := range answer.Plugins {
			if p.Error != "" {
				foreign.Fprintf(w, "policy %q: %s\n", p.Name, p.Error)
			}
			for _, text := range p.Warnings {
				foreign.Fprintf(w, "policy %q: warning: %s\n", p.Name, text)
			}
		}
		return nil
	}})
}

// moment returns a time for a table, empty for none.
func moment(when time.Time) string {
	if when.IsZero() {
		return ""
	}
	return when.Local().Format(time.DateTime)
}

func listVersions(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
	var answer struct {
		Versions []manage.Version `json:"versions"`
	}
	if err := c.do(ctx, http.MethodGet, []string{args[0], "versions"}, nil, &answer); err != nil {
		return err
	}
	return f.output.print(t, result{value: answer.Versions, text: func(w io.Writer) error {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "VERSION\tLOADED\tSHA256")
		for _, v := range answer.Versions {
			foreign.Fprintf(table, "%s\t%s\t%s\n", v.Version, moment(v.LoadedAt), v.Digest)
		}
		return table.Flush()
	}})
}

func rollBack(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
	body := map[string]string{}
	if len(args) == 2 {
		body["version"] = args[1]
	}
	var answer map[string]string
	if err := c.do(ctx, http.MethodPost, []string{args[0], "rollback"}, body, &answer); err != nil {
		return err
	}
	return f.done(t, args[0], answer)
}

// readSettings reads the file of --settings, YAML or JSON, as an object.
func (f *policiesFlags) readSettings() (map[string]json.RawMessage, error) {
	settings := map[string]json.RawMessage{}
	if f.settings == "" {
		return settings, nil
	}
	text, err := os.ReadFile(f.settings)
	if err != nil {
		return nil, fmt.Errorf("policies: --settings: %w", err)
	}
	if text, err = yaml.YAMLToJSONStrict(text); err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return nil, fmt.Errorf("policies: --settings: %s: %w", f.settings, err)
	}
	return settings, nil
}

// packed returns a module in the form of the API.
func packed(module []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(module); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(b.Bytes())
}

// loadPolicy loads a module as a policy. Its version is the one of the settings or, without one
// there, that of the module.
func loadPolicy(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
	body, err := f.readSettings()
	if err != nil {
		return err
	}
	about := map[string]json.RawMessage{}
	if body["metadata"] != nil {
		if err := json.Unmarshal(body["metadata"], &about); err != nil {
			return fmt.Errorf("policies: --settings: metadata: %w", err)
		}
	}
	_, module, err := t.module(ctx, args[1], f.from)
	if err != nil {
		return err
	}
	if m, err := metadata.Find(module); err == nil && m != nil && about["version"] == nil && m.Version != "" {
		about["version"], _ = json.Marshal(m.Version) // A text is JSON.
	}
	about["name"], _ = json.Marshal(args[0])
	if body["metadata"], err = json.Marshal(about); err != nil {
		return err
	}
	if body["wasm_binary"], err = packed(module); err != nil {
		return err
	}
	var answer map[string]string
	if err := c.do(ctx, http.MethodPost, nil, body, &answer); err != nil {
		return err
	}
	return f.done(t, args[0], answer)
}

// shadowPolicy prints the results of a shadow or, with a module, begins one.
func shadowPolicy(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
	if len(args) == 2 {
		body, err := f.readSettings()
		if err != nil {
			return err
		}
		_, module, err := t.module(ctx, args[1], f.from)
		if err != nil {
			return err
		}
		if body["wasm_binary"], err = packed(module); err != nil {
			return err
		}
		var answer map[string]string
		if err := c.do(ctx, http.MethodPost, []string{args[0], "shadow"}, body, &answer); err != nil {
			return err
		}
		return f.done(t, args[0], answer)
	}
	if f.settings != "" {
		return &usageError{errors.New("policies shadow: --settings is for a shadow that begins, with a module")}
	}
	var s shadow.Status
	if err := c.do(ctx, http.MethodGet, []string{args[0], "shadow"}, nil, &s); err != nil {
		return err
	}
	return f.output.print(t, result{value: s, text: func(w io.Writer) error {
		state := string(s.State)
		if s.Reason != "" {
			state += ": " + s.Reason
		}
		foreign.Fprintf(w, "%s, since %s\n%d calls compared, %d the same; %d asked for more, %d failed alone, %d were dropped, %d had nothing to compare\n",
			state, moment(s.Since), s.Compared, s.Same, s.Asked, s.Failed, s.Dropped, s.Uncompared)
		if len(s.NotRepeated) != 0 {
			foreign.Fprintf(w, "not repeated, so that nothing is known of them: %s\n", strings.Join(s.NotRepeated, ", "))
		}
		for _, g := range s.Groups {
			foreign.Fprintf(w, "%s: %d calls\n", g.Change, g.Calls)
			for _, e := range g.Examples {
				foreign.Fprintf(w, "  %s\n", e)
			}
		}
		return nil
	}})
}

// replica returns a client of one address of the server.
func (c *policyClient) replica(address string) *policyClient {
	one := *c.http
	transport := c.http.Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(to)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(address, port))
	}
	transport.Proxy = nil
	one.Transport = transport
	return &policyClient{base: c.base, http: &one, token: c.token}
}

// breakGlass lets the policies of all replicas only monitor for a time, or enforces them again. It
// changes as many replicas as it can.
func breakGlass(ctx context.Context, t *tool, f *policiesFlags, c *policyClient, args []string) error {
	method, body := http.MethodDelete, []byte(nil)
	if args[0] != "end" {
		lasts, err := time.ParseDuration(args[0])
		switch {
		case err != nil:
			return &usageError{fmt.Errorf("policies break-glass: %q is neither end nor a duration such as 30m", args[0])}
		case len(args) < 2:
			return &usageError{errors.New("policies break-glass: give the reason, which all who look at the servers see")}
		}
		method = http.MethodPost
		if body, err = json.Marshal(map[string]string{"for": lasts.String(), "reason": args[1]}); err != nil {
			return err
		}
	} else if len(args) != 1 {
		return &usageError{errors.New("policies break-glass end: want no reason")}
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, c.base.Hostname())
	if err != nil {
		return fmt.Errorf("policies break-glass: %w", err)
	}
	all, err := c.breakAll(ctx, addresses, method, body)
	printed := f.output.print(t, result{value: all, text: func(w io.Writer) error {
		for _, one := range all {
			switch {
			case one.Error != "":
				continue
			case one.Until != "":
				foreign.Fprintf(w, "%s: all policies only monitor until %s\n", one.Address, one.Until)
			default:
				foreign.Fprintf(w, "%s: policies are enforced\n", one.Address)
			}
		}
		return nil
	}})
	return errors.Join(err, printed)
}

// glassDone is the answer of a replica about break glass.
type glassDone struct {
	Address string `json:"address"`
	Until   string `json:"until,omitempty"`
	Status  string `json:"status,omitempty"`
	Error   string `json:"error,omitempty"`
}

// breakAll sends a request about break glass to all addresses at once: a replica that does not
// answer delays no other. The error joins those of the replicas.
func (c *policyClient) breakAll(ctx context.Context, addresses []string, method string, body []byte) ([]glassDone, error) {
	all, errs := make([]glassDone, len(addresses)), make([]error, len(addresses))
	var sending sync.WaitGroup
	for i, address := range addresses {
		sending.Go(func() {
			one := &all[i]
			err := c.replica(address).send(ctx, method, c.base.JoinPath("break-glass"), bytes.NewReader(body), one)
			if one.Address = address; err != nil {
				one.Error = err.Error()
				errs[i] = fmt.Errorf("%s: %w", address, err)
			}
		})
	}
	sending.Wait()
	return all, errors.Join(errs...)
}
