package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedadmission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
)

// configurations says what webhook configurations do not send of what policies match. No policy
// is asked about it, and nothing else would tell.
type configurations struct {
	client typedadmission.AdmissionregistrationV1Interface
	names  []string
	engine *admission.Engine
	logger *slog.Logger
	// said are the last texts, by policy and kind of webhook.
	said map[string]string
}

func newConfigurations(cluster *rest.Config, names []string, engine *admission.Engine, logger *slog.Logger) (*configurations, error) {
	client, err := typedadmission.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &configurations{client: client, names: names, engine: engine, logger: logger, said: map[string]string{}}, nil
}

// run compares at once and after each interval.
func (c *configurations) run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := c.compare(ctx); err != nil && ctx.Err() == nil {
			c.say("", slog.LevelInfo, "the webhook configurations are not compared with the policies", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sent are the rules of all webhooks of a kind, and what else narrows them.
type sent struct {
	found   bool
	rules   []admissionregistrationv1.RuleWithOperations
	objects []string
}

func (s *sent) add(configuration, webhook string, rules []admissionregistrationv1.RuleWithOperations, objects *metav1.LabelSelector) {
	s.found = true
	s.rules = append(s.rules, rules...)
	if objects != nil && len(objects.MatchLabels)+len(objects.MatchExpressions) != 0 {
		s.objects = append(s.objects, configuration+"/"+webhook)
	}
}

// compare reads the configurations and logs what has changed.
func (c *configurations) compare(ctx context.Context) error {
	var validating, mutating sent
	for _, name := range c.names {
		v, err := c.client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			for i := range v.Webhooks {
				validating.add(name, v.Webhooks[i].Name, v.Webhooks[i].Rules, v.Webhooks[i].ObjectSelector)
			}
		}
		m, err := c.client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			for i := range m.Webhooks {
				mutating.add(name, m.Webhooks[i].Name, m.Webhooks[i].Rules, m.Webhooks[i].ObjectSelector)
			}
		}
	}
	if !validating.found && !mutating.found {
		return nil // They come when the server runs.
	}
	policies := map[string]bool{}
	for _, p := range c.engine.Policies() {
		d := admission.Describe(p)
		if d.Disabled || d.Unavailable != nil {
			continue
		}
		policies[d.Name+" validating"], policies[d.Name+" mutating"] = true, true
		if d.Validates {
			c.report(d.Name, "validating", d.Unsent(validating.rules), validating.objects)
		}
		if d.Mutates {
			c.report(d.Name, "mutating", d.Unsent(mutating.rules), mutating.objects)
		}
	}
	// Those that are gone take no memory, and what comes back is said again.
	maps.DeleteFunc(c.said, func(key, _ string) bool { return !policies[key] })
	return nil
}

// report logs what a policy is not asked about.
func (c *configurations) report(policy, kind, unsent string, objects []string) {
	if unsent == "" && len(objects) != 0 {
		unsent = "objects without the labels that the objectSelector of " + strings.Join(objects, ", ") + " wants, which their authors choose"
	}
	c.say(policy+" "+kind, slog.LevelWarn, "the "+kind+" webhook configurations are narrower than the policy's match", unsent, "policy", policy)
}

// say logs a text that is new.
func (c *configurations) say(key string, level slog.Level, message, text string, attrs ...any) {
	if c.said[key] == text {
		return
	}
	c.said[key] = text
	if text == "" {
		c.logger.Info("the webhook configurations send all requests that the policy matches", attrs...)
		return
	}
	c.logger.Log(context.Background(), level, message, append(attrs, "unsent", text)...)
}
