package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
	"github.com/kubewasm/kubewasm/internal/serviceschema/methodcall"
)

// serviceInfo is a service of a module's schema.
type serviceInfo struct {
	Name string `json:"name"`
	// Host is set for a service that the plugin may call.
	Host bool `json:"host,omitempty"`
	// Methods have the form "Pick(PickRequest) PickResponse".
	Methods []string `json:"methods"`
}

// servicesOf returns the services of a schema.
func servicesOf(section []byte) ([]serviceInfo, error) {
	schema, err := serviceschema.Parse(section)
	if err != nil {
		return nil, err
	}
	var all []serviceInfo
	for _, s := range schema.Services {
		info := serviceInfo{Name: string(s.FullName()), Host: s.Host}
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			info.Methods = append(info.Methods, fmt.Sprintf("%s(%s) %s", m.Name(), m.Input().Name(), m.Output().Name()))
		}
		all = append(all, info)
	}
	return all, nil
}

// methods returns the methods of the extension points of a module.
func (r *examination) methods() (all []string) {
	for _, s := range r.Services {
		for _, m := range s.Methods {
			if name, _, _ := strings.Cut(m, "("); !s.Host {
				all = append(all, s.Name+"/"+name)
			}
		}
	}
	return all
}

// loadedServices are the plugins of a module, one for each extension point that it implements.
type loadedServices struct{ plugins []*service.Plugin }

func (l *loadedServices) Close(ctx context.Context) error {
	var errs []error
	for _, p := range l.plugins {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// loadServices loads a module into a host that has the services of the module's own schema.
// Extension points that the module does not implement are ignored, if it implements at least one.
func loadServices(ctx context.Context, rt *host.Runtime, try trying, cfg host.Config) (*loadedServices, error) {
	about, err := host.Inspect(try.module)
	if err != nil {
		return nil, err
	}
	section := about.Custom(abi.SchemaSection)
	schema, err := serviceschema.Parse(section)
	if section == nil {
		err = fmt.Errorf("there is no custom section %s, which kubewasm build adds", abi.SchemaSection)
	}
	if err != nil {
		return nil, err
	}
	l := &loadedServices{}
	var errs []error
	for _, name := range schema.Names() {
		d, err := service.Describe(section, name)
		if err != nil {
			return nil, err
		}
		p, err := service.Load(ctx, rt, service.Config{Config: cfg}, d, methodcall.HostServices(schema, nil)...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.plugins = append(l.plugins, p)
	}
	if len(l.plugins) == 0 {
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// runMethod calls a method of a service and prints the response.
func (t *tool) runMethod(ctx context.Context, path, method string, f *runFlags, printed *output) (err error) {
	defer func() {
		if err != nil && !errors.As(err, new(*usageError)) {
			err = fmt.Errorf("run %s %s: %w", path, method, err)
		}
	}()
	if len(f.files) != 1 {
		return &usageError{fmt.Errorf("-f names %d files, and a method takes one request", len(f.files))}
	}
	file := f.files[0]
	guest, err := readConfig(f.config)
	if err != nil {
		return err
	}
	_, module, err := t.module(ctx, path, f.from)
	if err != nil {
		return err
	}
	about, err := host.Inspect(module)
	if err != nil {
		return err
	}
	section := about.Custom(abi.SchemaSection)
	if section == nil {
		return errors.New("the module has no services")
	}
	schema, err := serviceschema.Parse(section)
	if err != nil {
		return err
	}
	m, err := schema.FindMethod(method)
	if err != nil {
		return err
	}
	d, err := service.Describe(section, string(m.Parent().FullName()))
	if err != nil {
		return err
	}
	rt, err := t.newRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	c := &methodcall.Call{}
	if f.answers != "" {
		if err := readAnswers(ctx, c, schema, f.answers); err != nil {
			return err
		}
	}
	fuel := &fuelCounter{}
	cfg := host.Config{Name: pluginName, Module: host.ModuleConfig{Bytes: module}, GuestConfig: guest, Grants: f.grants, Observer: fuel, Limits: host.Limits{Instances: 1}}
	if f.logged {
		cfg.Logger = slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	serviceCfg := service.Config{Config: cfg}
	if len(f.lookups) != 0 {
		cluster, _, err := t.clusterIn(ctx, f.lookups)
		if err != nil {
			return err
		}
		serviceCfg.Cluster, serviceCfg.Objects = cluster, cluster.ServiceGrants()
	}
	if c.Plugin, err = service.Load(ctx, rt, serviceCfg, d, methodcall.HostServices(schema, c.Answer)...); err != nil {
		return granting(err)
	}
	fuel.take()
	text, err := readDocument(ctx, file)
	if err != nil {
		return err
	}
	request, err := serviceschema.Encode(m.Input(), text, c)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	response, err := c.Plugin.CallBytes(ctx, string(m.Name()), request)
	if err != nil {
		return err
	}
	decoded, err := serviceschema.Decode(m.Output(), response, c)
	if err != nil {
		return fmt.Errorf("response: %w", err)
	}
	used, took := fuel.take()
	return printed.print(t, result{value: decoded, text: func(w io.Writer) error {
		text, err := yaml.Marshal(decoded)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s# %s, %d instructions\n", text, took, used)
		return err
	}})
}

// readDocument returns the only document of a file, or of the standard input, in JSON.
func readDocument(ctx context.Context, file string) ([]byte, error) {
	data, err := readFile(ctx, file)
	if err != nil {
		return nil, err
	}
	text, err := manifest.JSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if string(text) == "null" {
		text = []byte("{}")
	}
	return text, nil
}

// readAnswers reads the responses of host services.
func readAnswers(ctx context.Context, c *methodcall.Call, schema *serviceschema.Schema, file string) error {
	text, err := readDocument(ctx, file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &c.Answers); err != nil {
		return fmt.Errorf("%s: want a message for each SERVICE/METHOD: %w", file, err)
	}
	known := map[string]bool{}
	for _, s := range schema.Services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			known[serviceschema.Method(m)], known[string(s.Name())+"/"+string(m.Name())] = s.Host, s.Host
		}
	}
	for name := range c.Answers {
		if !known[name] {
			return fmt.Errorf("%s: the schema has no host service with the method %s", file, name)
		}
	}
	return nil
}
