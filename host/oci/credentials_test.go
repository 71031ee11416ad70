package oci

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/registryname"
)

// FuzzDockerConfig holds that no docker's config.json breaks its reader, that what is found is for
// the repository that was asked for, and that no error repeats a secret.
func FuzzDockerConfig(f *testing.F) {
	for _, text := range []string{
		`{"auths": {"ghcr.io": {"auth": "dXNlcjpTRUNSRVQ="}, "https://index.docker.io/v1/": {"username": "user", "password": "SECRET"}}}`,
		`{"auths": {"*.example.com:5000": {"registrytoken": "SECRET"}, "GHCR.io.:443/acme": {"identitytoken": "SECRET"}}, "credsStore": "pass"}`,
		`{"auths": {"[::1]:5000/v2/a": {"auth": "U0VDUkVU"}, "[a-": "SECRET"}, "credHelpers": {"gcr.io": "gcloud"}}`,
		`{"auths": {"ghcr.io/acme": {"auth": 1}}}`,
		" ",
	} {
		f.Add([]byte(text), "ghcr.io/acme/zone")
	}
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		config, err := parseDockerConfig(data)
		if err != nil {
			if strings.Contains(err.Error(), "SECRET") {
				t.Fatalf("the error repeats what stands there: %v", err)
			}
			return
		}
		registry, path, _ := strings.Cut(repository, "/")
		if spelt, err := registryname.Host(registry); err != nil || spelt != registry {
			return
		}
		config.helper(registry)
		found, err := lookUp([]dockerAuths{config.Auths, config.Auths}, repository)
		if err != nil && strings.Contains(err.Error(), "SECRET") && !strings.Contains(repository, "SECRET") {
			t.Fatalf("the error repeats what stands there: %v", err)
		}
		if len(found) != 0 && err != nil {
			t.Fatalf("credentials and an error: %v", err)
		}
		for name := range config.Auths {
			key, err := parseAuthKey(name)
			if err != nil || !key.matches(repository) {
				continue
			}
			if !key.glob && key.host != registry || key.path != "" && path != key.path && !strings.HasPrefix(path, key.path+"/") {
				t.Fatalf("credentials for %q are those for %q", repository, name)
			}
		}
	})
}
