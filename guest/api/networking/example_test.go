package networking_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/networking"
)

func Example() {
	ingress := networking.IngressFromJSON([]byte(`{"spec": {"rules": [{"host": "example.com", "http": {"paths": [
		{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}
	]}}]}}`))
	for _, rule := range ingress.Spec().Rules() {
		for _, path := range rule.IngressRuleValue().HTTP().Paths() {
			service := path.Backend().Service()
			fmt.Println(rule.Host()+path.Path(), service.Name(), service.Port().Number())
		}
	}
	// Output: example.com/ web 80
}
