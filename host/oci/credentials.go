package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/kubewasm/kubewasm/host"
)

// Credential is what a registry is shown: user and password, or a token.
type Credential struct {
	Username, Password string
	// RefreshToken is what docker calls an identity token, AccessToken a registry token.
	RefreshToken, AccessToken string
}

// credential returns the credentials for a host.
func (c *Client) credential(ctx context.Context, hostport string) (auth.Credential, error) {
	if c.cfg.Credentials != nil {
		got, err := c.cfg.Credentials(ctx, hostport)
		if err != nil {
			return auth.EmptyCredential, fmt.Errorf("get credentials for %s: %w", hostport, err)
		}
		if got != (Credential{}) {
			return auth.Credential(got), nil
		}
	}
	store, err := c.dockerConfig()
	if store == nil || err != nil {
		return auth.EmptyCredential, err
	}
	got, err := credentials.Credential(store)(ctx, hostport)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("get credentials for %s: %w", hostport, err)
	}
	return got, nil
}

// dockerConfig returns the credentials of docker, nil if there are none. The file is read
// each time: kubelet replaces that of a mounted pull secret.
func (c *Client) dockerConfig() (credentials.Store, error) {
	path := c.cfg.DockerConfig
	if path == "" {
		dir := os.Getenv("DOCKER_CONFIG")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, nil
			}
			dir = filepath.Join(home, ".docker")
		}
		path = filepath.Join(dir, "config.json")
		if _, err := os.Stat(path); err != nil {
			return nil, nil
		}
	}
	store, err := credentials.NewStore(path, credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	return store, nil
}

// PullSecrets returns credentials from Secrets of the type kubernetes.io/dockerconfigjson,
// for Config.Credentials. They are read when a registry asks for credentials; the first
// Secret that has some decides. Helpers that a Secret names are not run.
func PullSecrets(secrets host.ObjectGetter, namespace string, names ...string) func(ctx context.Context, host string) (Credential, error) {
	return func(ctx context.Context, hostport string) (Credential, error) {
		var errs []error
		for _, name := range names {
			got, err := pullSecret(ctx, secrets, namespace, name, hostport)
			if err != nil {
				errs = append(errs, fmt.Errorf("secret %s/%s: %w", namespace, name, err))
			} else if got != (Credential{}) {
				return got, nil
			}
		}
		return Credential{}, errors.Join(errs...)
	}
}

func pullSecret(ctx context.Context, secrets host.ObjectGetter, namespace, name, hostport string) (Credential, error) {
	const key = ".dockerconfigjson"
	data, err := secrets.Get(ctx, namespace, name)
	if err != nil {
		return Credential{}, err
	}
	config, ok := data[key]
	if !ok {
		return Credential{}, fmt.Errorf("key %q is missing", key)
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(config)
	if err != nil {
		// The error repeats what it cannot decode.
		return Credential{}, fmt.Errorf("key %q is not a configuration of docker", key)
	}
	// The store has hosts for keys, whatever stands in the Secret.
	for _, host := range []string{hostport, dockerHub[hostport]} {
		got, err := store.Get(ctx, host)
		if err != nil || got != auth.EmptyCredential {
			return Credential(got), err
		}
	}
	return Credential{}, nil
}

// dockerHub are other names of a host in configurations of docker.
var dockerHub = map[string]string{"registry-1.docker.io": "index.docker.io"}
