package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// kubeFlags are the flags of commands that ask a cluster.
type kubeFlags struct{ kubeconfig, context, namespace string }

func (k *kubeFlags) declare(flags *pflag.FlagSet) {
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&k.context, "context", "", "")
}

// config returns the connection to the cluster of a kubeconfig or, in a cluster, to that one, and
// the namespace of the kubeconfig's context.
func (k *kubeFlags) config() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: k.context})
	if config, err = loaded.ClientConfig(); err == nil {
		namespace, _, err = loaded.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("connect to the cluster: %w", err)
	}
	return config, namespace, nil
}

// clusterPlugins reads the plugins that the objects of a cluster declare.
type clusterPlugins struct {
	dynamic dynamic.Interface
	core    *kubernetes.Clientset
	// kinds are the resources of plugins by their kinds, and reports that of PluginReports.
	kinds     []metav1.APIResource
	namespace string
}

// pageOfObjects is the number of objects in a response: there may be a report for each node.
const pageOfObjects = 500

// cluster connects to a cluster that has the objects.
func (k *kubeFlags) cluster() (*clusterPlugins, error) {
	config, namespace, err := k.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubewasm"
	config.QPS, config.Burst = 50, 100
	c := &clusterPlugins{namespace: namespace}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the cluster has no %s: install its CustomResourceDefinitions, as docs/cluster.md describes", v1alpha1.GroupVersion)
	case err != nil:
		return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
	}
	for i := range resources.APIResources {
		// Objects with a status are plugins; others report on plugins, or are about them.
		if name, sub, _ := strings.Cut(resources.APIResources[i].Name, "/"); sub == "status" {
			at := slices.IndexFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			if at >= 0 && resources.APIResources[at].Kind != "ModuleTrust" {
				c.kinds = append(c.kinds, resources.APIResources[at])
			}
		}
	}
	slices.SortFunc(c.kinds, func(a, b metav1.APIResource) int { return strings.Compare(a.Kind, b.Kind) })
	return c, nil
}

// kind returns the resource that a user names: as a kind, a resource, or a short name.
func (c *clusterPlugins) kind(name string) (metav1.APIResource, error) {
	var kinds []string
	for _, r := range c.kinds {
		if slices.ContainsFunc(append([]string{r.Kind, r.Name, r.SingularName}, r.ShortNames...), func(n string) bool { return strings.EqualFold(n, name) }) {
			return r, nil
		}
		kinds = append(kinds, r.Kind)
	}
	return metav1.APIResource{}, &usageError{fmt.Errorf("%q is none of %s", name, strings.Join(kinds, ", "))}
}

// resource returns the client for a resource, in a namespace if its objects have one.
func (c *clusterPlugins) resource(r metav1.APIResource, namespace string) dynamic.ResourceInterface {
	all := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource(r.Name))
	if !r.Namespaced {
		return all
	}
	return all.Namespace(namespace)
}

// list passes the objects of a resource to each, a page after the other.
func (c *clusterPlugins) list(ctx context.Context, of dynamic.ResourceInterface, each func(*unstructured.Unstructured) error) error {
	options := metav1.ListOptions{Limit: pageOfObjects}
	for {
		list, err := of.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := each(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// pluginObject is an object that declares a plugin. All kinds have the same members.
type pluginObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Mode    string          `json:"mode"`
		Version string          `json:"version"`
		Module  json.RawMessage `json:"module"`
	} `json:"spec"`
	Status v1alpha1.PluginStatus `json:"status"`
}

func decoded[T any](u *unstructured.Unstructured) (*T, error) {
	to := new(T)
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return to, nil
}

// reports passes what all processes report to each, with the UID of the plugin. Processes report in
// their own namespaces, which the user may not be allowed to read. 5,000 reports on 200 plugins have a
// million states, of which none is kept here.
func (c *clusterPlugins) reports(ctx context.Context, each func(uid string, s processState)) error {
	of := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource("pluginreports"))
	err := c.list(ctx, of, func(u *unstructured.Unstructured) error {
		report := &v1alpha1.PluginReport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, report); err != nil {
			return fmt.Errorf("PluginReport %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
		for _, p := range report.Plugins {
			each(string(p.UID), processState{
				Component: report.Component, Namespace: report.Namespace, Process: report.Name, Node: report.Node, Version: report.Version, PluginState: p,
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the PluginReports: %w", err)
	}
	return nil
}

// processState is the state of a plugin in a process.
type processState struct {
	Component            string `json:"component"`
	Namespace            string `json:"namespace"`
	Process              string `json:"process"`
	Node                 string `json:"node,omitempty"`
	Version              string `json:"programVersion,omitempty"`
	v1alpha1.PluginState `json:",inline"`
}
