package oci

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/registryname"
)

// Credential is a proof of identity for a registry: user and password, or a token.
type Credential struct {
	Username, Password string
	// RefreshToken is docker's identity token, AccessToken its registry token.
	RefreshToken, AccessToken string
}

// credentials returns the credentials for a repository in the order in which they are tried.
func (c *Client) credentials(ctx context.Context, repository string) (list []Credential, err error) {
	if c.cfg.Credentials != nil {
		if list, err = c.cfg.Credentials(ctx, repository); err != nil {
			return nil, noCredentials(repository, err)
		}
	}
	more, err := c.dockerCredentials(ctx, repository)
	if err != nil {
		return nil, noCredentials(repository, err)
	}
	var unique []Credential
	for _, credential := range append(list, more...) {
		if credential != (Credential{}) && !slices.Contains(unique, credential) && len(unique) < maxCredentials {
			unique = append(unique, credential)
		}
	}
	return unique, nil
}

// noCredentials returns an error. Its reason, with names of Secrets and files, is for the operator
// only.
func noCredentials(repository string, err error) error {
	return publicerr.Wrap("the credentials for the registry cannot be read", fmt.Errorf("get credentials for %s: %w", repository, err))
}

// dockerCredentials returns the credentials of docker's configuration. The file is read each
// time: kubelet replaces that of a mounted pull secret.
func (c *Client) dockerCredentials(ctx context.Context, repository string) ([]Credential, error) {
	file := c.files.now.Load().dockerConfig
	if file == "" {
		dir := os.Getenv("DOCKER_CONFIG")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, nil
			}
			dir = filepath.Join(home, ".docker")
		}
		file = filepath.Join(dir, "config.json")
		if _, err := os.Stat(file); err != nil {
			return nil, nil
		}
	}
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	config, err := parseDockerConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var list []Credential
	registry, _, _ := strings.Cut(repository, "/")
	if helper := config.helper(registry); helper != "" {
		address := registry
		if registry == registryname.Docker {
			address = "https://index.docker.io/v1/" // By which docker login keeps it.
		}
		got, err := credentials.NewNativeStore(helper).Get(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("ask the helper %q of %s: %w", helper, file, err)
		}
		list = append(list, Credential(got))
	}
	found, err := lookUp([]dockerAuths{config.Auths}, repository)
	return append(list, found...), err
}

// PullSecrets returns credentials from Secrets of the types kubernetes.io/dockerconfigjson and
// kubernetes.io/dockercfg, for Config.Credentials. They are read when a registry requires
// credentials, and matched as the kubelet does: over all Secrets together, by host and path, the
// longest path first, with patterns for the parts of a host. A Secret that cannot be read is an
// error only if the others have nothing for the repository. Helpers named in a Secret are not run.
func PullSecrets(secrets host.ObjectGetter, namespace string, names ...string) func(ctx context.Context, repository string) ([]Credential, error) {
	return func(ctx context.Context, repository string) ([]Credential, error) {
		var entries []dockerAuths
		var errs []error
		for _, name := range names {
			auths, err := pullSecret(ctx, secrets, namespace, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("secret %s/%s: %w", namespace, name, err))
			}
			entries = append(entries, auths)
		}
		list, err := lookUp(entries, repository)
		if len(list) != 0 {
			return list, nil
		}
		return nil, errors.Join(append(errs, err)...)
	}
}

func pullSecret(ctx context.Context, secrets host.ObjectGetter, namespace, name string) (dockerAuths, error) {
	data, err := secrets.Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if text, ok := data[".dockerconfigjson"]; ok {
		config, err := parseDockerConfig(text)
		if err != nil {
			return nil, fmt.Errorf("key .dockerconfigjson: %w", err)
		}
		return config.Auths, nil
	}
	if text, ok := data[".dockercfg"]; ok {
		var auths dockerAuths
		if len(text) > maxFileBytes || json.Unmarshal(text, &auths) != nil {
			return nil, errors.New("key .dockercfg is not a configuration of docker")
		}
		return auths, nil
	}
	return nil, errors.New("keys .dockerconfigjson and .dockercfg are missing")
}

// dockerConfig is the part of docker's config.json that is read.
type dockerConfig struct {
	Auths             dockerAuths       `json:"auths"`
	CredentialStore   string            `json:"credsStore"`
	CredentialHelpers map[string]string `json:"credHelpers"`
}

// dockerAuths are credentials by HOST[/PATH], with or without a scheme.
type dockerAuths map[string]json.RawMessage

// parseDockerConfig reads docker's config.json. No error repeats its content.
func parseDockerConfig(data []byte) (*dockerConfig, error) {
	var config dockerConfig
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(data), maxFileBytes)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return &config, nil
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, errors.New("it is not a configuration of docker")
	}
	return &config, nil
}

// helper returns docker's helper for a registry.
func (c *dockerConfig) helper(registry string) string {
	for _, name := range slices.Sorted(maps.Keys(c.CredentialHelpers)) {
		if key, err := parseAuthKey(name); err == nil && key.host == registry {
			return c.CredentialHelpers[name]
		}
	}
	return c.CredentialStore
}

// authKey is a key of docker's configuration, as Kubernetes reads it: a host whose parts may be
// patterns, and a path.
type authKey struct {
	host, path string
	glob       bool
}

// parseAuthKey reads [http[s]://]HOST[:PORT][/PATH], where /v1/ and /v2/ are no part of a path.
func parseAuthKey(text string) (authKey, error) {
	for _, scheme := range []string{"https://", "http://"} {
		text = strings.TrimPrefix(text, scheme)
	}
	name, rest, _ := strings.Cut(text, "/")
	for _, version := range []string{"v1", "v2"} {
		if after, ok := strings.CutPrefix(rest, version); ok && (after == "" || after[0] == '/') {
			rest = after
		}
	}
	key := authKey{host: name, path: strings.Trim(rest, "/"), glob: strings.ContainsAny(name, "*?[")}
	if key.glob && !strings.HasPrefix(name, "[") {
		key.host = strings.TrimSuffix(strings.ToLower(name), ":443")
		for part := range strings.SplitSeq(key.host, ".") {
			if _, err := path.Match(part, ""); err != nil {
				return key, err
			}
		}
		return key, nil
	}
	var err error
	key.glob = false
	key.host, err = registryname.Host(name)
	return key, err
}

// matches reports whether a key is for a repository: its host part by part, and its path as a
// whole or up to a slash.
func (k *authKey) matches(repository string) bool {
	host, name, _ := strings.Cut(repository, "/")
	if k.path != "" && name != k.path && !strings.HasPrefix(name, k.path+"/") {
		return false
	}
	if !k.glob {
		return k.host == host
	}
	pattern, patternPort, _ := strings.Cut(k.host, ":")
	host, port, _ := strings.Cut(host, ":")
	patterns, parts := strings.Split(pattern, "."), strings.Split(host, ".")
	if patternPort != port || len(patterns) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(patterns[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// lookUp returns the credentials for a repository: those with the longest path first, a host before
// a pattern, and equal ones in the order of the Secrets. Entries for others may be malformed.
func lookUp(all []dockerAuths, repository string) ([]Credential, error) {
	type entry struct {
		authKey
		text json.RawMessage
	}
	var found []entry
	for _, auths := range all {
		for _, name := range slices.Sorted(maps.Keys(auths)) {
			if key, err := parseAuthKey(name); err == nil && key.matches(repository) {
				found = append(found, entry{key, auths[name]})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b entry) int {
		if n := len(b.path) - len(a.path); n != 0 {
			return n
		}
		if a.glob != b.glob {
			if b.glob {
				return -1
			}
			return 1
		}
		return len(b.host) - len(a.host)
	})
	var list []Credential
	var errs []error
	for _, e := range found {
		credential, err := parseCredential(e.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("credentials for %s: %w", path.Join(e.host, e.path), err))
		} else if credential != (Credential{}) {
			list = append(list, credential)
		}
	}
	if len(list) != 0 {
		return list, nil
	}
	return nil, errors.Join(errs...)
}

// parseCredential reads an entry. No error repeats its content.
func parseCredential(text json.RawMessage) (Credential, error) {
	var entry struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	}
	if err := json.Unmarshal(text, &entry); err != nil {
		return Credential{}, errors.New("want an object with auth, or with username and password")
	}
	c := Credential{entry.Username, entry.Password, entry.IdentityToken, entry.RegistryToken}
	if packed := strings.TrimSpace(entry.Auth); packed != "" {
		decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(packed, "="))
		user, password, ok := strings.Cut(string(decoded), ":")
		if err != nil || !ok {
			return Credential{}, errors.New("auth is not USER:PASSWORD in base64")
		}
		// docker login writes NULs after a password.
		c.Username, c.Password = user, strings.Trim(password, "\x00")
	}
	return c, nil
}

// maxFileBytes bounds a file of configuration; a Secret has 1 MiB at most.
const maxFileBytes = 4 << 20

// readFile reads a file of configuration.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFileBytes)
	}
	return data, nil
}
