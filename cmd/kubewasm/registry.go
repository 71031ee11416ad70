package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// registryFlags are the flags of the commands that talk to registries.
type registryFlags struct {
	config    *string
	plainHTTP []string
}

func (t *tool) registryFlags(flags *pflag.FlagSet) *registryFlags {
	r := &registryFlags{config: flags.String("registries", "", "")}
	flags.StringArrayVar(&r.plainHTTP, "plain-http", nil, "")
	return r
}

// client returns the client that the flags describe.
func (r *registryFlags) client(change func(*oci.Config)) (*oci.Client, error) {
	cfg, err := oci.ReadConfig(*r.config)
	if err != nil {
		return nil, err
	}
	cfg.Reload = nil // The flags override the file, and count for one command.
	for _, host := range r.plainHTTP {
		i := slices.IndexFunc(cfg.Registries, func(r oci.Registry) bool { return r.Host == host })
		if i < 0 {
			i = len(cfg.Registries)
			cfg.Registries = append(cfg.Registries, oci.Registry{Host: host})
		}
		cfg.Registries[i].PlainHTTP = true
	}
	if change != nil {
		change(&cfg)
	}
	return oci.New(cfg)
}

// pullFlags are the flags of the commands that fetch modules.
type pullFlags struct {
	*registryFlags
	key *string
}

func (t *tool) pullFlags(flags *pflag.FlagSet) *pullFlags {
	return &pullFlags{t.registryFlags(flags), flags.String("key", "", "")}
}

// fetch fetches an artifact, and returns its signers.
func (p *pullFlags) fetch(ctx context.Context, ref oci.Reference) (a *oci.Artifact, by string, err error) {
	client, err := p.client(func(cfg *oci.Config) {
		if *p.key != "" {
			cfg.Trust = []oci.Trust{{Repositories: []string{"*"}, AllOf: []oci.Signer{{KeyFile: *p.key}}}}
		}
	})
	if err != nil {
		return nil, "", err
	}
	if a, err = client.Fetch(ctx, ref); err != nil {
		return nil, "", err
	}
	by = "not verified"
	if len(a.SignedBy) != 0 {
		by = "signed by " + strings.Join(a.SignedBy, ", ")
	}
	if a.Stale {
		by += "; the registry is away, this is from the cache"
	}
	return a, by, nil
}

// references reads the arguments of a command.
func references(texts ...string) ([]oci.Reference, error) {
	var refs []oci.Reference
	var errs []error
	for _, text := range texts {
		ref, err := oci.ParseReference(text)
		refs, errs = append(refs, ref), append(errs, err)
	}
	return refs, errors.Join(errs...)
}

// key reads a private key, nil for no file. It asks for the password of an encrypted one.
func (t *tool) key(name string) (crypto.Signer, error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	data, err = decryptKey(data, func() ([]byte, error) { return askPassword(t.err, name) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, err := oci.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}

func push(t *tool, flags *pflag.FlagSet) action {
	annotations, attach := pairs{}, pairs{}
	flags.Var(annotations, "annotation", "")
	flags.Var(attach, "attach", "")
	fileName := flags.String("file-name", "plugin.wasm", "")
	image := flags.Bool("image", false, "")
	key := flags.String("key", "", "")
	printed := outputFlag(flags)
	registries := t.registryFlags(flags)
	return func(ctx context.Context, args []string) error {
		words, err := arguments(flags, args, "a module", "a reference")
		if err != nil {
			return err
		}
		refs, err := references(words[1])
		if _, is := os.Stat(words[1]); err != nil && is == nil {
			return &usageError{fmt.Errorf("push: %s is a file, want a reference: the module comes before it", words[1])}
		}
		if err != nil {
			return err
		}
		client, err := registries.client(nil)
		if err != nil {
			return err
		}
		file, err := t.file(ctx, words[0])
		if err != nil {
			return err
		}
		module, err := readModule(file)
		if err != nil {
			return err
		}
		opts := oci.PushOptions{Image: *image, FileName: *fileName}
		if opts.Annotations, err = annotationsOf(module); err != nil {
			return fmt.Errorf("push %s: %w", file, err)
		}
		maps.Copy(opts.Annotations, annotations)
		if opts.Created, err = sourceDate(); err != nil {
			return err
		}
		for _, mediaType := range slices.Sorted(maps.Keys(attach)) {
			data, err := os.ReadFile(attach[mediaType])
			if err != nil {
				return err
			}
			opts.Attached = append(opts.Attached, oci.Attachment{Type: mediaType, Data: data})
		}
		signer, err := t.key(*key)
		if err != nil {
			return err
		}
		pushing := t.working("pushing to " + words[1])
		digest, err := client.Push(ctx, refs[0], module, opts)
		pushing.end()
		if err != nil {
			return err
		}
		if signer != nil {
			signed := refs[0]
			signed.Digest = digest // Another may move the tag.
			if _, err := client.Sign(ctx, signed, signer, oci.SignOptions{}); err != nil {
				return err
			}
		}
		return printed.print(t, digested(refs[0], digest))
	}
}

// annotationsOf returns the annotations of a module, from its metadata.
func annotationsOf(module []byte) (map[string]string, error) {
	// It must be a module, whatever its purpose.
	if _, err := host.Inspect(module); err != nil {
		return nil, err
	}
	m, err := metadata.Find(module)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{}
	if m == nil {
		return annotations, nil
	}
	for key, value := range map[string]string{
		"org.opencontainers.image.title":    m.Name,
		"org.opencontainers.image.version":  m.Version,
		"org.opencontainers.image.source":   m.Source,
		"org.opencontainers.image.licenses": m.Licenses,
		"io.github.kubewasm.kinds":          strings.Join(m.Kinds, ","),
		"io.github.kubewasm.reads":          strings.Join(m.Reads, ","),
		"io.github.kubewasm.decides":        strings.Join(m.Decides, ","),
		"io.github.kubewasm.sdk":            m.SDK,
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	return annotations, nil
}

// sourceDate returns the time of https://reproducible-builds.org/specs/source-date-epoch/, or
// no time.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, want seconds", text)
	}
	return time.Unix(seconds, 0), nil
}

// digested is the result of a command that leads to a digest.
func digested(ref oci.Reference, digest string) result {
	about := struct {
		Reference string `json:"reference"`
		Digest    string `json:"digest"`
	}{ref.Name() + "@" + digest, digest}
	return result{value: about, text: func(w io.Writer) error {
		_, err := foreign.Fprintf(w, "%s\n", about.Reference)
		return err
	}}
}

func pull(t *tool, flags *pflag.FlagSet) action {
	file := flags.String("output-file", "plugin.wasm", "")
	printed := outputFlag(flags)
	from := t.pullFlags(flags)
	return func(ctx context.Context, args []string) error {
		words, err := arguments(flags, args, "a reference")
		if err != nil {
			return err
		}
		refs, err := references(words...)
		if err != nil {
			return err
		}
		fetching := t.working("fetching " + words[0])
		a, by, err := from.fetch(ctx, refs[0])
		fetching.end()
		if err != nil {
			return err
		}
		if err := writeWhole(*file, a.Module); err != nil {
			return err
		}
		about, err := host.Inspect(a.Module)
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		pulled := struct {
			File      string   `json:"file"`
			Reference string   `json:"reference"`
			Digest    string   `json:"digest"`
			SHA256    string   `json:"sha256"`
			SignedBy  []string `json:"signedBy,omitempty"`
		}{*file, refs[0].Name() + "@" + a.Digest, a.Digest, about.Digest(), a.SignedBy}
		return printed.print(t, result{value: pulled, text: func(w io.Writer) error {
			_, err := foreign.Fprintf(w, "%s: %s, %s, sha256 of the module is %s\n", *file, pulled.Reference, by, pulled.SHA256)
			return err
		}})
	}
}

func copyArtifact(t *tool, flags *pflag.FlagSet) action {
	printed := outputFlag(flags)
	registries := t.registryFlags(flags)
	return func(ctx context.Context, args []string) error {
		words, err := arguments(flags, args, "a source", "a destination")
		if err != nil {
			return err
		}
		refs, err := references(words...)
		if err != nil {
			return err
		}
		client, err := registries.client(nil)
		if err != nil {
			return err
		}
		copying := t.working("copying " + words[0])
		digest, err := client.Copy(ctx, refs[0], refs[1])
		copying.end()
		if err != nil {
			return err
		}
		return printed.print(t, digested(refs[1], digest))
	}
}

func sign(t *tool, flags *pflag.FlagSet) action {
	annotations := pairs{}
	flags.Var(annotations, "annotation", "")
	format := flags.String("format", "both", "")
	oneOf(flags, "format", "both", "bundle", "tag")
	key := flags.String("key", "", "")
	printed := outputFlag(flags)
	registries := t.registryFlags(flags)
	return func(ctx context.Context, args []string) error {
		words, err := arguments(flags, args, "a reference")
		if err != nil {
			return err
		}
		opts := oci.SignOptions{NoTag: *format == "bundle", NoBundle: *format == "tag"}
		if len(annotations) != 0 {
			opts.Annotations = annotations
		}
		if !slices.Contains([]string{"both", "bundle", "tag"}, *format) {
			return &usageError{fmt.Errorf("sign: --format is %q, want both, bundle or tag", *format)}
		}
		if *key == "" {
			return &usageError{errors.New("sign: --key is missing")}
		}
		refs, err := references(words...)
		if err != nil {
			return err
		}
		signer, err := t.key(*key)
		if err != nil {
			return err
		}
		client, err := registries.client(nil)
		if err != nil {
			return err
		}
		digest, err := client.Sign(ctx, refs[0], signer, opts)
		if err != nil {
			return err
		}
		return printed.print(t, digested(refs[0], digest))
	}
}
