package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// The rules are those of Koordinator's rule_test.go.
func TestRuleOf(t *testing.T) {
	const off = 99
	for name, c := range map[string]struct {
		spec        string
		lsr, ls, be int64
	}{
		"nothing":              {`{}`, off, off, off},
		"all, by default":      {`{"resourceQOSStrategy": {"lsrClass": {"cpuQOS": {"enable": true}}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}`, 2, 2, -1},
		"others":               {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "groupIdentity"}, "lsrClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}}, "lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 0}}, "beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}}}}`, 1, 0, -1},
		"BE alone":             {`{"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": false, "groupIdentity": 2}}, "beClass": {"cpuQOS": {"enable": true}}}}`, off, off, -1},
		"the policy coreSched": {`{"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsClass": {"cpuQOS": {"enable": true}}}}`, off, off, off},
	} {
		var slo nodeSLO
		if err := json.Unmarshal([]byte(`{"spec": `+c.spec+`}`), &slo); err != nil {
			t.Fatal(err)
		}
		got := ruleOf(&slo)
		for i, of := range [...]struct {
			got  *int64
			want int64
		}{{got.LSR, c.lsr}, {got.LS, c.ls}, {got.BE, c.be}} {
			if of.got == nil {
				of.got = new(int64(off))
			}
			if *of.got != of.want {
				t.Errorf("%s: identity %d is %d, want %d", name, i, *of.got, of.want)
			}
		}
	}
}

func TestTheRuleOfANode(t *testing.T) {
	const slo = `
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: node-1}
spec: {resourceQOSStrategy: {lsClass: {cpuQOS: {enable: true, groupIdentity: 1}}}}
`
	const pod = `{metadata: {name: web, labels: {koordinator.sh/qosClass: LS}}, spec: {containers: [{name: web, resources: {requests: {cpu: 500m}}}]}}`
	hookstest.Each(t, plugin{}, func(t *testing.T, p *hookstest.Plugin) {
		for node, want := range map[string]int64{"node-1": 1, "node-2": 99} {
			d, err := p.On(t, node, slo).Decide(t, pod, "")
			if err != nil {
				t.Fatal(err)
			}
			got := int64(99)
			if d.Resources != nil && d.Resources.CPUBvt != nil {
				got = *d.Resources.CPUBvt
			}
			if got != want {
				t.Errorf("%s: got %d, want %d", node, got, want)
			}
		}
	})
}
