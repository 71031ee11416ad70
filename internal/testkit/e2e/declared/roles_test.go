package declared_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// testRoles holds what viewers, editors and administrators of a namespace, and operators, may do by the
// roles of the chart. The roles that aggregate them are those of the API server; their controller
// does not run, so that its part is done here.
func testRoles(t *testing.T, w *world) {
	text, err := os.ReadFile("../../../../charts/manifests/controller/controller.yaml")
	w.must(err)
	var roles []*rbacv1.ClusterRole
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		role := new(rbacv1.ClusterRole)
		if err := yaml.Unmarshal(document, role); err != nil || role.Kind != "ClusterRole" || role.Labels["app.kubernetes.io/component"] != "roles" {
			continue
		}
		_, err = w.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
		w.must(err)
		roles = append(roles, role)
	}
	if len(roles) != 3 {
		t.Fatalf("%d roles", len(roles))
	}
	// Each of the roles aggregates the one before.
	parts := map[string][]*rbacv1.ClusterRole{}
	before := map[string]*rbacv1.ClusterRole{}
	for _, name := range []string{"view", "edit", "admin"} {
		of, err := w.Client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		w.must(err)
		for _, selector := range of.AggregationRule.ClusterRoleSelectors {
			s, err := metav1.LabelSelectorAsSelector(&selector)
			w.must(err)
			for _, role := range roles {
				if s.Matches(labels.Set(role.Labels)) {
					parts[name] = append(parts[name], role)
				}
			}
			for other, role := range before {
				if s.Matches(labels.Set(role.Labels)) {
					parts[name] = append(parts[name], parts[other]...)
				}
			}
		}
		before[name] = of
		bound := map[string]bool{}
		for _, role := range parts[name] {
			if bound[role.Name] {
				continue
			}
			bound[role.Name] = true
			_, err := w.Client.RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
			}, metav1.CreateOptions{})
			w.must(err)
		}
	}
	_, err = w.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubewasm-operator"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "operator"}},
	}, metav1.CreateOptions{})
	w.must(err)
	may := func(user, verb, resource, part, namespace string) bool {
		t.Helper()
		review, err := w.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: "kubewasm.dev", Resource: resource, Subresource: part, Namespace: namespace},
		}}, metav1.CreateOptions{})
		w.must(err)
		return review.Status.Allowed
	}
	w.until("the roles are known", func() bool {
		return may("operator", "create", "moduletrusts", "", "") && may("edit", "create", "admissionpolicies", "", "shop")
	})
	for _, tt := range []struct {
		user, verb, resource, part, namespace string
		want                                  bool
	}{
		{"view", "list", "admissionpolicies", "", "shop", true},
		{"view", "get", "pluginreports", "", "shop", true},
		{"view", "create", "admissionpolicies", "", "shop", false},
		{"view", "list", "admissionpolicies", "", "other", false},
		{"edit", "delete", "admissionpolicies", "", "shop", true},
		{"edit", "list", "admissionpolicies", "", "shop", true},
		{"edit", "create", "admissionpolicies", "", "other", false},
		{"edit", "patch", "admissionpolicies", "status", "shop", false},
		{"edit", "patch", "pluginreports", "", "shop", false},
		{"edit", "create", "moduletrusts", "", "", false},
		{"edit", "create", "clusteradmissionpolicies", "", "", false},
		{"admin", "patch", "admissionpolicies", "", "shop", true},
		{"admin", "create", "nodehooks", "", "", false},
		{"admin", "update", "moduletrusts", "", "", false},
		{"operator", "create", "schedulerplugins", "", "", true},
		{"operator", "delete", "nodehooks", "", "", true},
		{"operator", "patch", "clusteradmissionpolicies", "status", "", false},
		{"operator", "create", "pluginreports", "", "shop", false},
		{"nobody", "list", "admissionpolicies", "", "shop", false},
	} {
		if tt.want {
			w.until(tt.user+" may "+tt.verb+" "+tt.resource, func() bool { return may(tt.user, tt.verb, tt.resource, tt.part, tt.namespace) })
			continue
		}
		if got := may(tt.user, tt.verb, tt.resource, tt.part, tt.namespace); got != tt.want {
			t.Errorf("%s may %s %s %s in %q: %v, want %v", tt.user, tt.verb, tt.resource, tt.part, tt.namespace, got, tt.want)
		}
	}
}
