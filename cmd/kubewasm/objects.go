package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/strict"
)

// clusterIn returns a cluster of the objects in files, and these.
func (t *tool) clusterIn(ctx context.Context, paths []string) (*manifest.Cluster, *manifest.Objects, error) {
	there, err := t.readObjects(ctx, paths)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := manifest.NewCluster(there)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", strings.Join(paths, ", "), err)
	}
	return cluster, there, nil
}

// readObjects reads the objects of files, and of the .yaml, .yml and .json files below
// directories. A document that is no object is an error.
func (t *tool) readObjects(ctx context.Context, paths []string) (*manifest.Objects, error) {
	all := &manifest.Objects{}
	var errs []error
	unreadable, err := t.readFiles(ctx, paths, func(path string, objects *manifest.Objects, mistakes []error) {
		err := objects.Named()
		switch {
		case len(mistakes) != 0:
			err = mistakes[0]
		case len(objects.All) == 0:
			err = errors.New("no objects in it")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		all.All, all.Pods, all.Nodes = append(all.All, objects.All...), append(all.Pods, objects.Pods...), append(all.Nodes, objects.Nodes...)
	})
	errs = append(errs, err)
	for _, text := range unreadable {
		errs = append(errs, errors.New(text))
	}
	if errors.Join(errs...) == nil && len(all.All) == 0 {
		errs = append(errs, fmt.Errorf("there are no objects in %s", strings.Join(paths, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// readManifests is readObjects for files of other programs. It continues after documents that are
// no objects, which skipped names. The error joins all mistakes: missing files, or everything that
// was skipped if there is no object.
func (t *tool) readManifests(ctx context.Context, paths []string) (all *manifest.Objects, skipped []string, err error) {
	all = &manifest.Objects{}
	unreadable, err := t.readFiles(ctx, paths, func(path string, objects *manifest.Objects, mistakes []error) {
		for _, mistake := range mistakes {
			skipped = append(skipped, path+": "+mistake.Error())
		}
		for _, o := range objects.All {
			var metadata metav1.PartialObjectMetadata
			if err := json.Unmarshal(o.JSON, &metadata); err != nil {
				skipped = append(skipped, fmt.Sprintf("%s: the %s %s: %v", path, o.Kind, o.Name, strict.Readable(err)))
				continue
			}
			all.All = append(all.All, o)
		}
	})
	skipped = append(skipped, unreadable...)
	errs := []error{err}
	if len(all.All) == 0 {
		for _, text := range skipped {
			errs = append(errs, errors.New(text))
		}
		if errors.Join(errs...) == nil {
			errs = append(errs, fmt.Errorf("there are no objects in %s", strings.Join(paths, ", ")))
		}
	}
	return all, skipped, errors.Join(errs...)
}

// readFiles reads files, and those below directories, and passes the objects and the mistakes of
// each to read. It returns the unreadable files below directories, and as an error the other
// unreadable files. It prints the warnings about all files.
func (t *tool) readFiles(ctx context.Context, paths []string, read func(path string, objects *manifest.Objects, mistakes []error)) (unreadable []string, err error) {
	warnings := map[string][]string{}
	var order []string
	progress := t.progress("objects read")
	file := func(path string) error {
		data, err := readFile(ctx, path)
		if err != nil {
			return err
		}
		objects, mistakes, err := manifest.ReadOn(ctx, data, progress.add)
		if err != nil {
			return err
		}
		order = append(order, path)
		warnings[path] = objects.Warnings
		read(path, objects, mistakes)
		return nil
	}
	var errs []error
	for _, path := range paths {
		if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
			errs = append(errs, file(path))
			continue
		}
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				err = file(path)
			}
			if err != nil {
				unreadable = append(unreadable, err.Error())
			}
			return ctx.Err()
		})
		errs = append(errs, err)
	}
	progress.end()
	for _, path := range order {
		t.warnAll(path, warnings[path])
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return unreadable, errors.Join(errs...)
}

// readFile reads a file, or standard input for "-". It ends when ctx does.
func readFile(ctx context.Context, file string) ([]byte, error) {
	if file != "-" {
		return os.ReadFile(file)
	}
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(os.Stdin)
		done <- read{data, err}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
