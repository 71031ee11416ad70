package layout

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apart are modules whose versions follow from what they measure or wrap: the peers of the
// benchmarks, sigstore and Prometheus; and the types of the API, whose importers are to raise
// nothing.
var apart = []string{"cmd/kubewasm-controller/api/go.mod", "host/oci/sigstore/go.mod", "internal/bench/peers/go.mod", "internal/testkit/alerts/go.mod"}

// TestModulesShareVersions holds that modules with the same version of Kubernetes' libraries
// require the same versions of what those are compiled with. Otherwise Kubernetes is compiled
// once for each of them, which took a quarter of the time and of the disk of a whole run.
func TestModulesShareVersions(t *testing.T) {
	files, err := exec.Command("git", "-C", "../../..", "ls-files", "--", "go.mod", "*/go.mod", "*/go1*.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	require := regexp.MustCompile(`^(?:require )?((?:golang\.org/x|google\.golang\.org/grpc|github\.com/(?:go-openapi|go-logr|fxamacker|google/gnostic-models|prometheus|spf13/pflag)|go\.opentelemetry\.io/otel|go\.yaml\.in|sigs\.k8s\.io)\S*|k8s\.io/(?:klog/v2|kube-openapi|utils|apimachinery)) (v\S+)`)
	// The modules by version, by dependency, by version of k8s.io/apimachinery.
	seen := map[string]map[string]map[string][]string{}
	for file := range strings.FieldsSeq(string(files)) {
		if slices.Contains(apart, file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		lines := bufio.NewScanner(strings.NewReader(string(text)))
		for lines.Scan() {
			if m := require.FindStringSubmatch(strings.TrimSpace(lines.Text())); m != nil {
				versions[m[1]] = m[2]
			}
		}
		kubernetes := versions["k8s.io/apimachinery"]
		if kubernetes == "" {
			continue
		}
		if seen[kubernetes] == nil {
			seen[kubernetes] = map[string]map[string][]string{}
		}
		for path, version := range versions {
			if seen[kubernetes][path] == nil {
				seen[kubernetes][path] = map[string][]string{}
			}
			seen[kubernetes][path][version] = append(seen[kubernetes][path][version], file)
		}
	}
	if len(seen) < 3 {
		t.Fatalf("got %d versions of Kubernetes, want those of three minors at least", len(seen))
	}
	for kubernetes, paths := range seen {
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if len(paths[path]) > 1 {
				t.Errorf("modules with k8s.io/apimachinery %s require several versions of %s: %v; go get one in each", kubernetes, path, paths[path])
			}
		}
	}
}
