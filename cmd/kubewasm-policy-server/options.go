package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// options are the settings, which are flags and variables of the environment. A flag goes
// before its variable. Those without a variable named KUBEWASM_ have the names, the meanings
// and the defaults of Kubewarden's policy-server.
type options struct {
	addr, probeAddr                             string
	certFile, keyFile                           string
	clientCAFiles                               []string
	policies, sources, verification             string
	trustRoot, trustRootCache, dockerConfig     string
	downloadDir                                 string
	acceptNamespace                             string
	timeout                                     time.Duration
	workers                                     int
	logLevel, logFormat                         string
	metrics, pprof                              bool
	guests, guestsFile                          string
	namespacedCapabilities, defaultCapabilities string
	memoryBytes                                 uint64
	cacheCopy, nativeOnly                       bool
	// isolation is the minimum, and after the start the level of policies without one.
	isolation    host.Isolation
	drainDelay   time.Duration
	readyTimeout time.Duration
	check        bool
	// level is the level of the log now.
	level slog.LevelVar
	// ignored are the settings that are given and have no meaning here.
	ignored []string
}

// setting is a flag and its variable.
type setting struct {
	flag, env, usage string
	// otherwise is the default, and boolean reports whether the flag may stand alone.
	otherwise string
	boolean   bool
	// set takes a value; nil ignores it.
	set func(value string) error
}

// errVersion is returned for -version.
var errVersion = errors.New("version is asked for")

// parse reads the flags, and the environment for those that are not given. Errors are all
// mistakes, joined.
func parse(args []string, getenv func(string) string, out io.Writer) (*options, error) {
	o := new(options)
	var host, port, probePort, seconds string
	unbounded := false
	text := func(to *string) func(string) error {
		return func(value string) error { *to = value; return nil }
	}
	one := func(to *string, of ...string) func(string) error {
		return func(value string) error {
			if *to = value; !slices.Contains(of, value) {
				return fmt.Errorf("want one of %s", strings.Join(of, ", "))
			}
			return nil
		}
	}
	truth := func(to *bool) func(string) error {
		return func(value string) (err error) {
			switch strings.ToLower(value) {
			case "y", "yes", "on":
				value = "true"
			case "n", "no", "off":
				value = "false"
			}
			if *to, err = strconv.ParseBool(value); err != nil {
				return errors.New("want true or false")
			}
			return nil
		}
	}
	settings := []setting{
		{"addr", "KUBEWARDEN_BIND_ADDRESS", "`address` to listen on", "0.0.0.0", false, text(&host)},
		{"port", "KUBEWARDEN_PORT", "`port` of the policies", "3000", false, text(&port)},
		{"readiness-probe-port", "KUBEWARDEN_READINESS_PROBE_PORT", "`port` of /readiness and /metrics, without TLS", "8081", false, text(&probePort)},
		{"cert-file", "KUBEWARDEN_CERT_FILE", "`file` of the certificate, PEM; TLS is disabled if empty", "", false, text(&o.certFile)},
		{"key-file", "KUBEWARDEN_KEY_FILE", "`file` of its key, PEM", "", false, text(&o.keyFile)},
		{"client-ca-file", "KUBEWARDEN_CLIENT_CA_FILE", "comma-separated `files` of the CAs that sign client certificates; not requested if empty", "", false, func(value string) error {
			o.clientCAFiles = strings.Split(value, ",")
			return nil
		}},
		{"policies", "KUBEWARDEN_POLICIES", "`file` that declares the policies; it is followed", "policies.yml", false, text(&o.policies)},
		{"policies-download-dir", "KUBEWARDEN_POLICIES_DOWNLOAD_DIR", "`directory` for fetched and compiled modules", ".", false, text(&o.downloadDir)},
		{"sources-path", "KUBEWARDEN_SOURCES_PATH", "`file` with access to registries", "", false, text(&o.sources)},
		{"verification-path", "KUBEWARDEN_VERIFICATION_CONFIG_PATH", "`file` with the required signatures of modules", "", false, text(&o.verification)},
		{"sigstore-trust-config", "KUBEWARDEN_SIGSTORE_TRUST_CONFIG_PATH", "`file` of a Sigstore ClientTrustConfig or a trusted root, JSON; without it the public Sigstore is trusted", "", false, text(&o.trustRoot)},
		{"sigstore-cache-dir", "KUBEWARDEN_SIGSTORE_CACHE_DIR", "`directory` for the trusted root of the public Sigstore", "sigstore-data", false, text(&o.trustRootCache)},
		{"docker-config-json-path", "KUBEWARDEN_DOCKER_CONFIG_JSON_PATH", "`directory` of a config.json of docker, or that file, with credentials for registries", "", false, text(&o.dockerConfig)},
		{"always-accept-admission-reviews-on-namespace", "KUBEWARDEN_ALWAYS_ACCEPT_ADMISSION_REVIEWS_ON_NAMESPACE", "`namespace` whose requests are admitted without evaluation", "", false, text(&o.acceptNamespace)},
		{"policy-timeout", "KUBEWARDEN_POLICY_TIMEOUT", "maximum duration of an evaluation in `seconds`", "2", false, text(&seconds)},
		{"disable-timeout-protection", "KUBEWARDEN_DISABLE_TIMEOUT_PROTECTION", "let an evaluation take as long as the API server waits", "false", true, truth(&unbounded)},
		{"workers", "KUBEWARDEN_WORKERS", "`number` of simultaneous evaluations; by default the number of CPUs for each policy", "", false, func(value string) (err error) {
			if o.workers, err = strconv.Atoi(value); err != nil || o.workers < 1 {
				return errors.New("want a number from 1")
			}
			return nil
		}},
		{"log-level", "KUBEWARDEN_LOG_LEVEL", "`level` of the log: trace, debug, info, warn or error", "info", false, one(&o.logLevel, "trace", "debug", "info", "warn", "error")},
		{"log-fmt", "KUBEWARDEN_LOG_FMT", "`format` of the log: text, json, or otlp, which is text and sends spans to a collector", "text", false, one(&o.logFormat, "text", "json", "otlp")},
		{"enable-metrics", "KUBEWARDEN_ENABLE_METRICS", "send metrics to a collector by OTLP, besides /metrics", "false", true, truth(&o.metrics)},
		{"enable-pprof", "KUBEWARDEN_ENABLE_PPROF", "serve /debug/pprof/cpu and /debug/pprof/heap", "false", true, truth(&o.pprof)},
		{"check", "KUBEWASM_CHECK", "load the policies, test what serving needs, report mistakes, and exit", "false", true, truth(&o.check)},
		// Without a meaning here.
		{"log-no-color", "NO_COLOR", "ignored: logs have no colors", "", true, nil},
		{"ignore-kubernetes-connection-failure", "KUBEWARDEN_IGNORE_KUBERNETES_CONNECTION_FAILURE", "ignored: without a cluster, only policies that look up objects fail", "", true, nil},
		{"continue-on-errors", "KUBEWARDEN_CONTINUE_ON_ERRORS", "ignored: the server always continues", "", true, nil},
		{"daemon", "KUBEWARDEN_DAEMON", "ignored: the server stays in the foreground", "", true, nil},
		{"daemon-pid-file", "KUBEWARDEN_DAEMON_PID_FILE", "ignored", "", false, nil},
		{"daemon-stdout-file", "KUBEWARDEN_DAEMON_STDOUT_FILE", "ignored", "", false, nil},
		{"daemon-stderr-file", "KUBEWARDEN_DAEMON_STDERR_FILE", "ignored", "", false, nil},
		// Of this server.
		{"guests", "KUBEWASM_GUESTS", "limits and grants of policies, `YAML`", "", false, text(&o.guests)},
		{"guests-path", "KUBEWASM_GUESTS_PATH", "`file` of the same; it is followed", "", false, text(&o.guestsFile)},
		{"default-capabilities", "KUBEWASM_DEFAULT_CAPABILITIES", "host capabilities of policies without hostCapabilities in the policies file, comma-separated `patterns`; none by default", "", false, text(&o.defaultCapabilities)},
		{"namespaced-capabilities", "KUBEWASM_NAMESPACED_CAPABILITIES", "host capabilities available to policies of a namespace, comma-separated `patterns`; none by default", "", false, text(&o.namespacedCapabilities)},
		{"cache-copy", "KUBEWASM_CACHE_COPY", "map copies without names of machine code in the download directory instead of its files, which must not be overwritten in place", "false", true, truth(&o.cacheCopy)},
		{"minimum-isolation", "KUBEWASM_MINIMUM_ISOLATION", "lowest `level` of isolation of a policy, none or process; policies without one have it. By default policies without one have process, where the system can run child processes", "", false, text((*string)(&o.isolation))},
		{"native-histograms-only", "KUBEWASM_NATIVE_HISTOGRAMS_ONLY", "leave the classic buckets of histograms of guests out of /metrics, for a Prometheus that scrapes native histograms", "false", true, truth(&o.nativeOnly)},
		{"memory", "KUBEWASM_MEMORY", "maximum `bytes` of all guests together; by default half of the memory available to the process", "", false, func(value string) (err error) {
			if o.memoryBytes, err = strconv.ParseUint(value, 10, 64); err != nil {
				return errors.New("want a number of bytes")
			}
			return nil
		}},
		{"drain-delay", "KUBEWASM_DRAIN_DELAY", "time to keep serving after a signal to end, a `duration`", "5s", false, func(value string) (err error) {
			if o.drainDelay, err = time.ParseDuration(value); err != nil || o.drainDelay < 0 {
				return errors.New("want a duration such as 5s")
			}
			return nil
		}},
		{"ready-timeout", "KUBEWASM_READY_TIMEOUT", "maximum time for which modules that cannot be fetched keep the server from being ready, a `duration`", "10m", false, func(value string) (err error) {
			if o.readyTimeout, err = time.ParseDuration(value); err != nil || o.readyTimeout <= 0 {
				return errors.New("want a duration such as 10m")
			}
			return nil
		}},
	}
	given := map[string]string{}
	flags := flag.NewFlagSet("policy-server", flag.ContinueOnError)
	flags.SetOutput(out)
	for _, s := range settings {
		keep := func(value string) error { given[s.flag] = value; return nil }
		usage := s.usage + " (" + s.env + ")"
		if s.otherwise != "" && s.otherwise != "false" {
			usage += " (default " + s.otherwise + ")"
		}
		if s.boolean {
			flags.BoolFunc(s.flag, usage, keep)
		} else {
			flags.Func(s.flag, usage, keep)
		}
	}
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *version {
		return nil, errVersion
	}
	var errs []error
	for _, name := range flags.Args() {
		errs = append(errs, fmt.Errorf("unknown argument %q", name))
	}
	for _, s := range settings {
		value, ok := given[s.flag]
		from := "-" + s.flag
		if !ok {
			from = s.env
			value = getenv(s.env)
		}
		switch {
		case s.set == nil:
			if value != "" && s.env != "NO_COLOR" {
				o.ignored = append(o.ignored, from)
			}
			continue
		case value == "":
			if value = s.otherwise; value == "" {
				continue
			}
		}
		if err := s.set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: %w", from, value, err))
		}
	}
	for _, p := range []struct{ name, value string }{{"port", port}, {"readiness-probe-port", probePort}} {
		if _, err := strconv.ParseUint(p.value, 10, 16); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: want a number up to 65535", p.name, p.value))
		}
	}
	o.addr, o.probeAddr = net.JoinHostPort(host, port), net.JoinHostPort(host, probePort)
	if !unbounded {
		n, err := strconv.ParseUint(seconds, 10, 31)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("policy-timeout is %q: want a number of seconds from 1", seconds))
		}
		o.timeout = time.Duration(n) * time.Second
	}
	if (o.certFile == "") != (o.keyFile == "") {
		errs = append(errs, errors.New("cert-file and key-file need each other"))
	}
	if len(o.clientCAFiles) != 0 && o.certFile == "" {
		errs = append(errs, errors.New("client-ca-file needs cert-file and key-file"))
	}
	if o.guests != "" && o.guestsFile != "" {
		errs = append(errs, errors.New("guests and guests-path exclude each other"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return o, nil
}
