// Router picks the model server for a request, by plugins that are WebAssembly modules. Each
// runs until its file is replaced, and is then swapped.
//
//	go run ./examples/endpoint-picker/router -plugin prefix=prefix.wasm:2 -config prefix.yaml < request.yaml
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
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
)

// plugins are the values of the flag: name=file:weight.
type plugins []string

func (p *plugins) String() string { return strings.Join(*p, " ") }

func (p *plugins) Set(s string) error {
	*p = append(*p, s)
	return nil
}

func main() {
	var list plugins
	flag.Var(&list, "plugin", "a plugin as name=file:weight; may be repeated")
	config := flag.String("config", "", "the configuration of all plugins, in YAML")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, list, *config, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run loads the plugins, reads a request in YAML and writes the endpoint that serves it.
func run(ctx context.Context, list plugins, config string, in io.Reader, out io.Writer) (err error) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	var guest []byte
	if config != "" {
		if guest, err = os.ReadFile(config); err != nil {
			return err
		}
		if guest, err = yaml.YAMLToJSON(guest); err != nil {
			return fmt.Errorf("%s: %w", config, err)
		}
	}
	router := &Router{}
	for _, text := range list {
		name, rest, _ := strings.Cut(text, "=")
		file, weight, _ := strings.Cut(rest, ":")
		w, err := strconv.ParseFloat(weight, 64)
		if err != nil {
			return fmt.Errorf("plugin %q: want name=file:weight", text)
		}
		p, err := picker.LoadPicker(ctx, rt, service.Config{Config: host.Config{
			Name: name, Source: host.File(file), GuestConfig: guest, Grants: []string{"cache"}, Logger: slog.Default(),
		}, FailurePolicy: host.Ignore}, NewIndex())
		if err != nil {
			return err
		}
		// A new file takes over as soon as it is there, and only if it loads.
		go p.Follow(ctx, host.FollowOptions{})
		router.plugins = append(router.plugins, Weighted{p, w})
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
