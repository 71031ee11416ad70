package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// The rules are those of Koordinator's rule_test.go: Test_parseRuleForNodeSLO.
func TestRuleOf(t *testing.T) {
	on, expels, idle := param{enabled: true}, param{enabled: true, expeller: true}, param{enabled: true, idle: true}
	for name, c := range map[string]struct {
		spec string
		want rule
	}{
		"nothing":                        {`{}`, rule{}},
		"another policy":                 {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": true}}}}`, rule{}},
		"the policy, and no class":       {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}}}`, rule{set: true}},
		"all classes":                    {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsrClass": {"cpuQOS": {"enable": true}}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}`, rule{true, expels, expels, on}},
		"LS and BE":                      {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsrClass": {"cpuQOS": {"enable": false, "coreExpeller": true}}, "lsClass": {"cpuQOS": {"enable": true, "coreExpeller": true}}, "beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}}`, rule{true, param{}, expels, idle}},
		"BE idle, and off":               {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": false, "schedIdle": 1}}}}`, rule{set: true}},
		"BE alone, in groups of its own": {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true, "coreExpeller": true}}}}`, rule{set: true, be: expels}},
	} {
		var slo nodeSLO
		if err := json.Unmarshal([]byte(`{"spec": `+c.spec+`}`), &slo); err != nil {
			t.Fatal(err)
		}
		if got := ruleOf(&slo); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestGroups(t *testing.T) {
	on, expels := param{enabled: true}, param{enabled: true, expeller: true}
	all, noLSR := rule{true, expels, expels, on}, rule{true, param{}, expels, on}
	for _, c := range []struct {
		name               string
		rule               rule
		qos, group, policy string
		class              abi.QOSClass
		want               string
	}{
		{"latency sensitive", all, "LS", "g", "", abi.QOSBurstable, "koordinator/g-expeller"},
		{"latency sensitive, without a group", all, "LS", "", "", abi.QOSBurstable, "koordinator/-expeller"},
		{"reserved", all, "LSR", "g", "", abi.QOSGuaranteed, "koordinator/g-expeller"},
		{"exclusive CPUs", all, "LSE", "g", "", abi.QOSGuaranteed, "koordinator/g-expeller"},
		{"reserved, which is off", noLSR, "LSR", "g", "", abi.QOSGuaranteed, ""},
		{"background", all, "BE", "g", "", abi.QOSBestEffort, "koordinator/g"},
		{"background, without a group", all, "BE", "", "", abi.QOSBestEffort, "koordinator/"},
		{"no label, by the class", all, "", "", "", abi.QOSBestEffort, "koordinator/"},
		{"a guaranteed pod without LSR", noLSR, "", "g", "", abi.QOSGuaranteed, "koordinator/g-expeller"},
		{"a word that is none", all, "fast", "g", "", abi.QOSBurstable, "koordinator/g-expeller"},
		{"the system", all, "SYSTEM", "g", "", abi.QOSBurstable, ""},
		{"in no group", all, "LS", "g", "none", abi.QOSBurstable, ""},
		{"by itself", all, "LS", "g", "exclusive", abi.QOSBurstable, "koordinator/u1-expeller"},
		{"background by itself", all, "BE", "g", "exclusive", abi.QOSBestEffort, "koordinator/u1"},
		{"a policy that is none", all, "BE", "g", "other", abi.QOSBestEffort, "koordinator/g"},
		{"nothing is on", rule{}, "LS", "g", "", abi.QOSBurstable, ""},
	} {
		labels := map[string]string{}
		for name, text := range map[string]string{qosLabel: c.qos, groupLabel: c.group, policyLabel: c.policy} {
			if text != "" {
				labels[name] = text
			}
		}
		req := hooks.NewRequest(hooks.Fields{Level: abi.LevelContainer, QOSClass: c.class, PodUID: "u1", PodLabels: labels})
		if got := c.rule.group(req); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPlugin(t *testing.T) {
	const slo = `
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: node-1}
spec: {resourceQOSStrategy: {policies: {cpuPolicy: coreSched}, lsClass: {cpuQOS: {enable: true}}}}
`
	const pod = `{metadata: {name: web, uid: u1, labels: {koordinator.sh/qosClass: LS}}, spec: {containers: [{name: web, resources: {requests: {cpu: 500m}}}]}}`
	hookstest.Each(t, &coreScheduling{}, func(t *testing.T, p *hookstest.Plugin) {
		for node, want := range map[string]string{"node-1": "koordinator/-expeller", "node-2": ""} {
			d, err := p.On(t, node, slo).Decide(t, pod, "web")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if d.Resources != nil && d.Resources.CoreSchedGroup != nil {
				got = *d.Resources.CoreSchedGroup
			}
			if got != want {
				t.Errorf("%s: got %q, want %q", node, got, want)
			}
		}
	})
}

func TestIdle(t *testing.T) {
	slo := func(strategy string) string {
		return "\napiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: node-1}\nspec: {resourceQOSStrategy: " + strategy + "}\n"
	}
	const idle = `{policies: {cpuPolicy: coreSched}, beClass: {cpuQOS: {enable: true, schedIdle: 1}}}`
	labeled := func(qos string) string {
		return `{metadata: {name: job, uid: u1, labels: {koordinator.sh/qosClass: ` + qos + `}}, spec: {containers: [{name: job}]}}`
	}
	const none = -1
	hookstest.Each(t, &coreScheduling{}, func(t *testing.T, p *hookstest.Plugin) {
		for _, c := range []struct {
			name, strategy, config, qos string
			pod, class                  int64 // Of the pod and of BestEffort.
		}{
			{"background", idle, `{}`, "BE", 1, none},
			{"latency sensitive beside it", idle, `{}`, "LS", 0, none},
			{"a word that is none", idle, `{}`, "fast", none, none},
			{"background that is not idle", `{policies: {cpuPolicy: coreSched}, beClass: {cpuQOS: {enable: true}}}`, `{}`, "BE", 0, none},
			{"another policy", `{policies: {cpuPolicy: groupIdentity}, beClass: {cpuQOS: {enable: true, schedIdle: 1}}}`, `{}`, "BE", none, none},
			{"the class, as of koordlet", idle, `{"idleQOSClasses": true}`, "BE", none, 1},
			{"the class that is not idle", `{policies: {cpuPolicy: coreSched}}`, `{"idleQOSClasses": true}`, "BE", none, 0},
		} {
			p := p.On(t, "node-1", slo(c.strategy)).Configure(t, c.config)
			got := func(d *hookmsg.Decision, err error) int64 {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				if d.Resources == nil || d.Resources.CPUIdle == nil {
					return none
				}
				return *d.Resources.CPUIdle
			}
			if n := got(p.Decide(t, labeled(c.qos), "")); n != c.pod {
				t.Errorf("%s: of the pod got %d, want %d", c.name, n, c.pod)
			}
			if n := got(p.Ask(t, &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: abi.QOSBestEffort})); n != c.class {
				t.Errorf("%s: of the class got %d, want %d", c.name, n, c.class)
			}
		}
	})
}
