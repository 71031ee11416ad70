package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// chooser is what a webhook or an admission policy of the API server leaves out.
type chooser struct {
	Name              string                                   `json:"name"`
	NamespaceSelector *metav1.LabelSelector                    `json:"namespaceSelector"`
	ObjectSelector    *metav1.LabelSelector                    `json:"objectSelector"`
	MatchConditions   []admissionregistrationv1.MatchCondition `json:"matchConditions"`
}

// conditions are those that read an object and exempt nothing that its writer wants exempt:
// internal/testkit/e2e/admission tries them.
var conditions = []string{"not-only-status", "not-only-finalizers-removed"}

// exemptions returns what an object of YAML exempts by labels, annotations or states that users
// of the cluster control; found reports whether the object exempts at all.
func exemptions(document string) (wrong []string, found bool) {
	var object struct {
		Kind     string    `json:"kind"`
		Webhooks []chooser `json:"webhooks"`
		Spec     struct {
			MatchConstraints chooser `json:"matchConstraints"`
			MatchResources   chooser `json:"matchResources"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		return nil, false // A template, or no YAML.
	}
	choosers := object.Webhooks
	switch object.Kind {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		choosers = []chooser{object.Spec.MatchConstraints, object.Spec.MatchResources}
	default:
		return nil, false
	}
	for _, c := range choosers {
		if c.ObjectSelector != nil {
			wrong = append(wrong, "objectSelector: whoever writes an object gives it labels")
		}
		if s := c.NamespaceSelector; s != nil {
			keys := []string{}
			for key := range s.MatchLabels {
				keys = append(keys, key)
			}
			for _, e := range s.MatchExpressions {
				keys = append(keys, e.Key)
			}
			for _, key := range keys {
				if key != "kubernetes.io/metadata.name" {
					wrong = append(wrong, "namespaceSelector: the owner of a namespace changes "+key)
				}
			}
		}
		for _, m := range c.MatchConditions {
			if strings.Contains(strings.ToLower(m.Expression), "object") && !slices.Contains(conditions, m.Name) {
				wrong = append(wrong, "matchConditions: "+m.Name+" reads what the writer of an object chooses")
			}
		}
	}
	return wrong, true
}

// TestNothingIsExemptByWhatItControls holds that no manifest and no page leaves objects out of
// admission by something that a cluster's user can change.
func TestNothingIsExemptByWhatItControls(t *testing.T) {
	root := "../../.."
	found := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == ".git" || name == "node_modules" || name == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		extension := filepath.Ext(path)
		if !slices.Contains([]string{".yaml", ".yml", ".md", ".tmpl", ".json"}, extension) {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parts := []string{string(data)}
		if extension == ".md" {
			parts = nil
			for i, fence := range strings.Split(string(data), "```") {
				if _, code, ok := strings.Cut(fence, "\n"); ok && i%2 == 1 {
					parts = append(parts, code)
				}
			}
		}
		for _, part := range parts {
			for _, document := range strings.Split("\n"+part, "\n---") {
				wrong, exempts := exemptions(document)
				if exempts {
					found[extension]++
				}
				for _, w := range wrong {
					t.Errorf("%s: %s", strings.TrimPrefix(path, root+"/"), w)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found[".yaml"] < 4 {
		t.Errorf("%v documents were looked at, want those of the webhook and of the node agent", found)
	}
}

func TestExemptions(t *testing.T) {
	const head = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nwebhooks:\n- name: a.example.com\n  "
	for name, test := range map[string]struct {
		document string
		want     int
	}{
		"the name of a namespace":   {head + "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}", 0},
		"a label of a namespace":    {head + "namespaceSelector: {matchExpressions: [{key: kubewasm.dev/webhook, operator: NotIn, values: [ignore]}]}", 1},
		"labels of a namespace":     {head + "namespaceSelector: {matchLabels: {a: b, c: d}}", 2},
		"labels of an object":       {head + "objectSelector: {matchLabels: {a: b}}", 1},
		"the state of an object":    {head + "matchConditions: [{name: not-being-deleted, expression: '!has(object.metadata.deletionTimestamp)'}]", 1},
		"the old state of it":       {head + "matchConditions: [{name: x, expression: 'oldObject == null'}]", 1},
		"a group of the user":       {head + `matchConditions: [{name: x, expression: "!('system:nodes' in request.userInfo.groups)"}]`, 0},
		"a policy":                  {"kind: ValidatingAdmissionPolicy\nspec: {matchConstraints: {objectSelector: {}}}", 1},
		"the binding of a policy":   {"kind: ValidatingAdmissionPolicyBinding\nspec: {matchResources: {namespaceSelector: {matchLabels: {a: b}}}}", 1},
		"another kind of an object": {"kind: Pod\nwebhooks: [{objectSelector: {}}]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if wrong, _ := exemptions(test.document); len(wrong) != test.want {
				t.Errorf("found %q, want %d", wrong, test.want)
			}
		})
	}
}
