package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
)

const ingresses = `
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: web}, spec: {rules: [{host: shop.example.com}, {host: www.example.com}]}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: bank, name: web}, spec: {rules: [{host: bank.example.com}, {}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}}
`

func TestPolicy(t *testing.T) {
	admissiontest.Each(t, policy{}, func(t *testing.T, p *admissiontest.Plugin) {
		for name, test := range map[string]struct {
			manifest string
			want     []string
		}{
			"a host of its own":          {`metadata: {namespace: shop, name: new}, spec: {rules: [{host: new.example.com}]}`, nil},
			"no host":                    {`metadata: {namespace: shop, name: new}, spec: {rules: [{}]}`, nil},
			"the Ingress that has it":    {`metadata: {namespace: shop, name: web}, spec: {rules: [{host: www.example.com}]}`, nil},
			"the host of a neighbour":    {`metadata: {namespace: shop, name: new}, spec: {rules: [{host: www.example.com}]}`, []string{`spec.rules[0].host: Invalid value: "www.example.com": the Ingress shop/web has it`}},
			"the host of another tenant": {`metadata: {namespace: shop, name: web}, spec: {rules: [{host: shop.example.com}, {host: bank.example.com}]}`, []string{`spec.rules[1].host: Invalid value: "bank.example.com": the Ingress bank/web has it`}},
		} {
			t.Run(name, func(t *testing.T) {
				got := p.In(t, ingresses).Create(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, `+test.manifest+`}`)
				if diff := cmp.Diff(test.want, got.FieldErrors); diff != "" || got.Allowed != (test.want == nil) {
					t.Errorf("%+v, errors (-want +got):\n%s", got, diff)
				}
			})
		}
		if got := p.Create(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: new}, spec: {rules: [{host: www.example.com}]}}`); !got.Allowed {
			t.Errorf("without any Ingress: %+v", got)
		}
	})
}
