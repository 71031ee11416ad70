package entries

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
)

// TestNamespacesTakeNoRoom holds that policies of namespaces, however many and large they are, leave
// the policies of the cluster their entries, and each other those that they have.
func TestNamespacesTakeNoRoom(t *testing.T) {
	p := &pass{Reconciler: &Reconciler{}, configurations: configurations(), caBundle: []byte("ca")}
	for _, c := range p.configurations {
		c.present = map[string]*entry{}
	}
	validate := p.configurations[0]
	// add adds a policy with an entry of a size, and one that it has now, 0 for none.
	var all []*decision
	add := func(namespace, name string, now, size int) *decision {
		var of any = &v1alpha1.ClusterAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if namespace != "" {
			of = &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		}
		d := &decision{}
		d.Plugin, _ = plugin.Of(of)
		with := func(size int) *entry {
			return &entry{Name: nameOf(d.Key), Rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{strings.Repeat("x", size)}}}}}
		}
		if now != 0 {
			validate.present[nameOf(d.Key)] = with(now)
		}
		d.entries = map[string]*entry{validate.verb: with(size)}
		all = append(all, d)
		return d
	}
	var grown []*decision
	for i := range 120 {
		// They were small when they came.
		grown = append(grown, add(fmt.Sprintf("tenant-%d", i/30), fmt.Sprintf("p%d", i), 100, 14<<10))
	}
	other := add("team", "other", 100, 100)
	shop := add("", "shop", 0, 14<<10)
	p.bound(all)
	if shop.refusal != nil || shop.entries == nil {
		t.Errorf("a new policy of the cluster gets no entry: %v", shop.refusal)
	}
	if other.refusal != nil || other.entries == nil {
		t.Errorf("another namespace loses its entry: %v", other.refusal)
	}
	total, kept := 0, 0
	for _, d := range all {
		if total += d.size(); d.entries[validate.verb] == nil {
			t.Errorf("%s loses its entry", d.Key)
		}
	}
	for _, d := range grown {
		if d.refusal != nil && d.refusal.reason == reasonTooMany {
			kept++
		}
	}
	if total > maxBytes || kept == 0 || kept == len(grown) {
		t.Errorf("the entries have %d bytes, want at most %d; %d of %d stay as they were", total, maxBytes, kept, len(grown))
	}

	// The namespaces have filled the configuration before.
	for _, d := range all {
		if e := d.entries[validate.verb]; e != nil {
			validate.present[e.Name] = e
		}
	}
	all = nil
	for i := range 20 {
		add("", fmt.Sprintf("cluster-%d", i), 0, 14<<10)
	}
	first := all
	for _, d := range grown {
		d.refusal = nil
	}
	all = append(all, grown...)
	p.bound(all)
	total = 0
	for _, d := range all {
		total += d.size()
	}
	for _, d := range first {
		if d.refusal != nil {
			t.Errorf("%s gets no entry: %v", d.Key, d.refusal)
		}
	}
	if total > maxBytes {
		t.Errorf("the entries have %d bytes, want at most %d", total, maxBytes)
	}
}
