package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/webhook"
)

// tokenOptions are the flags about the tokens of API servers.
type tokenOptions struct {
	mode, issuer, keys                  string
	audiences, subjects, configurations []string
}

func (o *tokenOptions) flags(flags *flag.FlagSet) {
	list := func(name string, to *[]string, usage string) {
		flags.Func(name, usage, func(text string) error {
			*to = strings.Split(text, ",")
			return nil
		})
	}
	flags.StringVar(&o.mode, "tokens", "off", "authentication of API servers by bearer tokens: off, optional or required")
	list("token-audiences", &o.audiences, "comma-separated `URLs`, one of which must be a token's audience: those of webhooks.yaml, https://NAME.NAMESPACE.svc:PORT/PATH for a Service")
	list("token-configurations", &o.configurations, "comma-separated `names` of the webhook configurations to which a token may be bound; any if empty")
	list("token-subjects", &o.subjects, "comma-separated `names` of ServiceAccounts whose tokens need not be bound: system:serviceaccount:NAMESPACE:NAME")
	flags.StringVar(&o.issuer, "token-issuer", "", "`URL` of the issuer of tokens; the cluster's if empty")
	flags.StringVar(&o.keys, "token-keys", "", "`file` of the issuer's public keys, a JWK Set or PEM; the cluster's if empty")
}

// check returns an error for flags that do not go together.
func (o *tokenOptions) check() error {
	switch {
	case o.mode != "off" && o.mode != "optional" && o.mode != "required":
		return fmt.Errorf("-tokens is %q, want off, optional or required", o.mode)
	case o.mode != "off" && len(o.audiences) == 0:
		return errors.New("-tokens needs -token-audiences")
	case o.mode == "off" && (len(o.audiences) != 0 || len(o.subjects) != 0 || len(o.configurations) != 0 || o.issuer != "" || o.keys != ""):
		return errors.New("-token-audiences and its like need -tokens")
	}
	return nil
}

// config returns what the server does about tokens, nil for nothing. What the flags leave
// open comes from the cluster.
func (o *tokenOptions) config(ctx context.Context, kubeconfig string) (*webhook.TokenConfig, error) {
	if o.mode == "off" {
		return nil, nil
	}
	cfg := &webhook.TokenConfig{
		Required: o.mode == "required", Issuer: o.issuer, Audiences: o.audiences, Subjects: o.subjects, Configurations: o.configurations,
	}
	if o.keys != "" {
		cfg.Keys = webhook.KeysFile(o.keys)
	}
	if cfg.Issuer != "" && cfg.Keys != nil {
		return cfg, nil
	}
	if kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, errors.New("-tokens needs a cluster, or -token-issuer and -token-keys")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	// The ClusterRole system:service-account-issuer-discovery allows both paths, to every
	// ServiceAccount.
	api := client.RESTClient()
	if cfg.Keys == nil {
		cfg.Keys = func(ctx context.Context) ([]byte, error) { return get(ctx, api, "/openid/v1/jwks") }
	}
	if cfg.Issuer == "" {
		data, err := get(ctx, api, "/.well-known/openid-configuration")
		if err != nil {
			return nil, err
		}
		var discovery struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(data, &discovery); err != nil {
			return nil, fmt.Errorf("read the OpenID configuration of the cluster: %w", err)
		}
		cfg.Issuer = discovery.Issuer
	}
	return cfg, nil
}

func get(ctx context.Context, api rest.Interface, path string) ([]byte, error) {
	data, err := api.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s of the cluster: %w", path, err)
	}
	return data, nil
}
