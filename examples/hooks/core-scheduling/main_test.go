package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// The rules are those of Koordinator's rule_test.go: Test_parseRuleForNodeSLO.
func TestRuleOf(t *testing.T) {
	on, expels := param{enabled: true}, param{enabled: true, expeller: true}
	for name, c := range map[string]struct {
		spec string
		want rule
	}{
		"nothing":                        {`{}`, rule{}},
		"another policy":                 {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": true}}}}`, rule{}},
		"the policy, and no class":       {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}}}`, rule{}},
		"all classes":                    {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsrClass": {"cpuQOS": {"enable": true}}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}`, rule{expels, expels, on}},
		"LS and BE":                      {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsrClass": {"cpuQOS": {"enable": false, "coreExpeller": true}}, "lsClass": {"cpuQOS": {"enable": true, "coreExpeller": true}}, "beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}}`, rule{param{}, expels, on}},
		"BE alone, in groups of its own": {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true, "coreExpeller": true}}}}`, rule{be: expels}},
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
	all, noLSR := rule{expels, expels, on}, rule{param{}, expels, on}
	for _, c := range []struct {
		name               string
		rule               rule
		qos, group, policy string
		class              hooks.QOSClass
		want               string
	}{
		{"latency sensitive", all, "LS", "g", "", hooks.QOSBurstable, "koordinator/g-expeller"},
		{"latency sensitive, without a group", all, "LS", "", "", hooks.QOSBurstable, "koordinator/-expeller"},
		{"reserved", all, "LSR", "g", "", hooks.QOSGuaranteed, "koordinator/g-expeller"},
		{"exclusive CPUs", all, "LSE", "g", "", hooks.QOSGuaranteed, "koordinator/g-expeller"},
		{"reserved, which is off", noLSR, "LSR", "g", "", hooks.QOSGuaranteed, ""},
		{"background", all, "BE", "g", "", hooks.QOSBestEffort, "koordinator/g"},
		{"background, without a group", all, "BE", "", "", hooks.QOSBestEffort, "koordinator/"},
		{"no label, by the class", all, "", "", "", hooks.QOSBestEffort, "koordinator/"},
		{"a guaranteed pod without LSR", noLSR, "", "g", "", hooks.QOSGuaranteed, "koordinator/g-expeller"},
		{"a word that is none", all, "fast", "g", "", hooks.QOSBurstable, "koordinator/g-expeller"},
		{"the system", all, "SYSTEM", "g", "", hooks.QOSBurstable, ""},
		{"in no group", all, "LS", "g", "none", hooks.QOSBurstable, ""},
		{"by itself", all, "LS", "g", "exclusive", hooks.QOSBurstable, "koordinator/u1-expeller"},
		{"background by itself", all, "BE", "g", "exclusive", hooks.QOSBestEffort, "koordinator/u1"},
		{"a policy that is none", all, "BE", "g", "other", hooks.QOSBestEffort, "koordinator/g"},
		{"nothing is on", rule{}, "LS", "g", "", hooks.QOSBurstable, ""},
	} {
		labels := map[string]string{}
		for name, text := range map[string]string{qosLabel: c.qos, groupLabel: c.group, policyLabel: c.policy} {
			if text != "" {
				labels[name] = text
			}
		}
		req := hooks.NewRequest(hooks.Fields{Level: hooks.LevelContainer, QOSClass: c.class, PodUID: "u1", PodLabels: labels})
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
	hookstest.Each(t, coreScheduling{}, func(t *testing.T, p *hookstest.Plugin) {
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
