// Router picks the model server for a request, by plugins that are WebAssembly modules. Each
// runs until its file is replaced, and is then swapped.
//
//	cd examples/endpoint-picker && go run ./router -plugin adapter=adapter.wasm:1 -plugin prefix=prefix.wasm:2 -config prefix=prefix.yaml < request.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
)

// values are those of a flag that may be repeated.
type values []string

func (v *values) String() string { return strings.Join(*v, " ") }

func (v *values) Set(s string) error {
	*v = append(*v, s)
	return nil
}

func main() {
	var plugins, configs values
	flag.Var(&plugins, "plugin", "plugin as name=file:weight; may be repeated")
	flag.Var(&configs, "config", "configuration of a plugin, a YAML file, as name=file; may be repeated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, plugins, configs, os.Stdin, os.Stdout); err != nil {
		log.Fatalf("%q", err.Error()) // Quoted, since plugins write a part of it.
	}
}

// run loads the plugins, reads a request in YAML and writes the endpoint that serves it.
func run(ctx context.Context, plugins, configs values, in io.Reader, out io.Writer) (err error) {
	var cache string // Of compiled modules, so that only the first run compiles them.
	if dir, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(dir, "kubewasm", "compiled")
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir:   cache,
		CacheError: func(err error) { log.Println("without a cache of compiled modules:", err) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	config := map[string][]byte{}
	for _, text := range configs {
		name, file, _ := strings.Cut(text, "=")
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if config[name], err = yaml.YAMLToJSON(data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	router := &Router{}
	for _, text := range plugins {
		name, rest, _ := strings.Cut(text, "=")
		file, weight, _ := strings.Cut(rest, ":")
		w, err := strconv.ParseFloat(weight, 64)
		if err != nil {
			return fmt.Errorf("plugin %q: want name=file:weight", text)
		}
		p, err := picker.LoadPicker(ctx, rt, service.Config{Config: host.Config{
			// A new file takes over as soon as it is there, and only if it loads.
			Name: name, Module: host.ModuleConfig{File: file, Follow: true}, GuestConfig: config[name], Grants: []string{"cache"}, Logger: slog.Default(),
		}, FailurePolicy: host.Ignore}, NewIndex())
		if err != nil {
			return err
		}
		router.plugins = append(router.plugins, Weighted{name, p, w})
		delete(config, name)
	}
	for name := range config {
		return fmt.Errorf("configuration of %q: there is no such plugin", name)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	req := &picker.PickRequest{}
	if err := yaml.UnmarshalStrict(text, req); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	endpoint, err := router.Pick(ctx, req)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, endpoint.Name)
	return err
}
