package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestMistakes holds that values with a mistake are refused with a sentence that names it.
func TestMistakes(t *testing.T) {
	c, err := load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	const policy = "name: p, module: {file: /plugins/p.wasm}"
	for _, test := range []struct{ name, values, want string }{
		// By values.schema.json.
		{"a misspelt program", "webhok: {enabled: true}", `additional properties 'webhok' not allowed`},
		{"a misspelt value", "webhook: {enabled: true, replica: 2}", `at '/webhook': additional properties 'replica' not allowed`},
		{"no replicas", "webhook: {enabled: true, replicas: 0}", `at '/webhook/replicas': minimum: got 0, want 1`},
		{"a text for a number", "scheduler: {enabled: true, replicas: two}", `at '/scheduler/replicas': got string, want integer`},
		{"a quantity in another unit", "webhook: {enabled: true, memory: {guests: 256M}}", `at '/webhook/memory/guests': '256M' does not match pattern`},
		{"an unknown mode of certificates", "certificates: {mode: LetsEncrypt}", `at '/certificates/mode': value must be one of 'SelfManaged', 'CertManager', 'Existing'`},
		{"a policy without a name", "webhook: {enabled: true, policies: [{module: {file: a.wasm}}]}", `at '/webhook/policies/0': missing property 'name'`},
		{"a policy without a module", "webhook: {enabled: true, policies: [{name: a}]}", `at '/webhook/policies/0': missing property 'module'`},
		{"an operation in lower case", "webhook: {enabled: true, policies: [{" + policy + ", match: {rules: [{operations: [create], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]}", `at '/webhook/policies/0/match/rules/0/operations/0': value must be one of 'CREATE', 'UPDATE', 'DELETE', 'CONNECT', '*'`},
		{"a resource in upper case", "webhook: {enabled: true, policies: [{" + policy + ", match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [Pods]}]}}]}", `'Pods' does not match pattern`},
		{"a failure policy that is none", "webhook: {enabled: true, configurations: {failurePolicy: Warn}}", `at '/webhook/configurations/failurePolicy': value must be one of 'Fail', 'Ignore'`},
		{"a timeout that API servers refuse", "webhook: {enabled: true, configurations: {timeoutSeconds: 60}}", `at '/webhook/configurations/timeoutSeconds': maximum: got 60, want 30`},
		{"a share of no nodes", "agent: {enabled: true, maxUnavailable: 0%}", `at '/agent/maxUnavailable'`},
		{"a module over plain HTTP", "scheduler: {enabled: true, plugins: [{name: a, module: {https: 'http://example.com/a.wasm'}}]}", `at '/scheduler/plugins/0/module/https': 'http://example.com/a.wasm' does not match pattern`},
		{"a misspelt source", "scheduler: {enabled: true, plugins: [{name: a, module: {url: 'https://example.com/a.wasm'}}]}", `at '/scheduler/plugins/0/module': additional properties 'url' not allowed`},
		{"a pool without a name", "agent: {enabled: true, pools: [{nodeSelector: {a: b}}]}", `at '/agent/pools/0': missing property 'name'`},
		{"a log level that is none", "webhook: {enabled: true, logLevel: trace}", `at '/webhook/logLevel': value must be one of`},
		{"no settings of certificates", "{certificates: {selfManaged: null}, webhook: {enabled: true}}", `at '/certificates': missing property 'selfManaged'`},
		{"a certificate without an end", "{certificates: {selfManaged: {days: null}}, webhook: {enabled: true}}", `at '/certificates/selfManaged': missing property 'days'`},
		{"broken glass with an end in words", "webhook: {enabled: true, breakGlass: {until: tomorrow, reason: r}}", `at '/webhook/breakGlass/until': 'tomorrow' does not match pattern`},
		// By the templates.
		{"broken glass without a reason", "webhook: {enabled: true, breakGlass: {until: '2026-11-29T18:00:00Z'}}", `webhook.breakGlass.reason is missing`},
		{"a certificate that ends before it is renewed", "{certificates: {selfManaged: {days: 30}}, webhook: {enabled: true}}", `certificates.selfManaged: renewAfterDays is 60, not less than days, which is 30`},
		{"no program", "monitoring: {enabled: true}", `no program is enabled: set one of webhook.enabled`},
		{"trust that is not in effect", "{webhook: {enabled: true}, registries: {config: {trust: [{repositories: ['*'], unsigned: true}]}}}", `registries.config has no effect without registries.enabled`},
		{"a trusted root that is not in effect", "{webhook: {enabled: true}, registries: {sigstoreTrustConfig: sigstore}}", `registries.sigstoreTrustConfig has no effect without registries.enabled`},
		{"a policy without rules", "webhook: {enabled: true, policies: [{" + policy + "}]}", `webhook.policies: p: match.rules is missing: without rules the policy would be asked about every request of the cluster`},
		{"two policies of one name", "webhook: {enabled: true, policies: [{" + policy + "}, {" + policy + "}]}", `webhook.policies: there are two plugins p`},
		{"two sources", "scheduler: {enabled: true, plugins: [{name: a, module: {file: a.wasm, oci: 'ghcr.io/a/a:1'}}]}", `scheduler.plugins: a: module needs one of file, configMap`},
		{"a download without its digest", "scheduler: {enabled: true, plugins: [{name: a, module: {https: 'https://example.com/a.wasm'}}]}", `scheduler.plugins: a: module.https needs module.sha256`},
		{"a Secret for a program that reads none", "agent: {enabled: true, plugins: [{name: a, module: {secret: {name: a, key: a.wasm}}}]}", `agent.plugins: a: module.secret is for the webhook`},
		{"a module of another namespace", "webhook: {enabled: true, policies: [{name: p, module: {configMap: {namespace: other, name: a, key: a.wasm}}, match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]}", `module.configMap of a is in the namespace other`},
		{"the module in args", "scheduler: {enabled: true, plugins: [{name: a, module: {file: a.wasm}, args: {module: {file: b.wasm}}}]}", `scheduler.plugins: a: the module is named by module beside args`},
		{"more memory than there is", "webhook: {enabled: true, memory: {guests: 1Gi}}", `webhook: memory.goLimit and memory.guests together are more than resources.limits.memory of 768Mi`},
		{"a cache that is too small", "scheduler: {enabled: true, cache: {size: 32Mi}}", `scheduler: cache.size is 32Mi, less than the 64Mi that the program may keep`},
		{"no mode", "agent: {enabled: true, configuration: {standalone: null, nri: null}}", `agent.configuration has none of standalone, nri and runtimeHook`},
		{"what the chart fills in", "agent: {enabled: true, configuration: {http: {address: ':1'}}}", `agent.configuration.http: the chart fills it in from other values`},
		{"an agent without plugins", "agent: {enabled: true}", `agent.plugins: there are no plugins, and an agent does not start without`},
		{"a pool without plugins", "agent: {enabled: true, plugins: [{name: a, module: {file: a.wasm}}], pools: [{name: a, plugins: []}]}", `there are no plugins, and an agent does not start without`},
		{"two pools of one name", "agent: {enabled: true, plugins: [{name: p, module: {file: p.wasm}}], pools: [{name: a, nodeSelector: {a: b}}, {name: a}]}", `agent.pools: there are two pools a`},
		{"two pools for the same nodes", "agent: {enabled: true, plugins: [{name: p, module: {file: p.wasm}}], pools: [{name: a, nodeSelector: {a: b}}, {name: b, nodeSelector: {a: b}}]}", `agent.pools: a and b select the same nodes: a node has one agent`},
		{"an existing certificate that is not named", "{certificates: {mode: Existing}, webhook: {enabled: true}}", `certificates.existing.webhook is missing`},
		{"an existing certificate without a CA", "{certificates: {mode: Existing, existing: {webhook: a}}, webhook: {enabled: true, policies: [{" + policy + ", match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]}}", `certificates.existing.caBundle is missing`},
		{"policies for a server that the controller manages", "policyServer: {enabled: true, policies: {a: {module: 'registry://ghcr.io/a/a:1'}}}", `policyServer.policies is for managedBy Chart`},
		{"a policy of Kubewarden without rules", "policyServer: {enabled: true, managedBy: Chart, policies: {a: {module: 'registry://ghcr.io/a/a:1'}}}", `policyServer.policies: a: rules are missing: API servers would not ask the policy`},
		{"a policy of Kubewarden without a module", "policyServer: {enabled: true, managedBy: Chart, policies: {a: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}}", `policyServer.policies: a: module is missing`},
	} {
		t.Run(test.name, func(t *testing.T) {
			values := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(test.values), &values); err != nil {
				t.Fatal(err)
			}
			_, err := release{name: "kubewasm", namespace: namespace}.render(c, values)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %s", err, test.want)
			}
		})
	}
}
