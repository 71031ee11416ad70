package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// show runs the quick start and returns what it prints.
func show(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, &out)
	return out.String(), err
}

func manifest(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBuiltinManifests(t *testing.T) {
	out, err := show(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node-b1 is the best node",
		`node is in zone "zone-c", the Pod wants zone-a or zone-b`,
		"node has the taint dedicated=gpu:NoSchedule, which the Pod does not tolerate",
		"node is cordoned",
		"No node fits: the Pod stays pending.",
		"shop/web       allowed",
		"default/miner  denied, 422 Unprocessable Entity",
		"metadata.labels[team]: Required value",
		"Warning: container miner: the tag latest may be another image tomorrow",
		"container-0/cpu.shares        512   1536",
		"container-0/cpu.cfs_quota_us  -1    150000",
		"left as it is",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("not printed: %s", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestOwnManifests(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"any order, comments, other kinds, a List": {`
# Only a comment.
---
apiVersion: v1
kind: Pod
metadata: {name: late, labels: {app: x, team: y}, annotations: {kubewasm.dev/cpu: "2"}}
spec: {containers: [{name: c, image: registry.example.com/c, resources: {limits: {cpu: "1", memory: 1Gi}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: passed-over}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: only-node}
`, []string{"only-node is the best node", "default/late  allowed", "cpu.shares        1024    2048", "cpu.cfs_quota_us  100000  200000"}},
		"no Nodes": {`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}`,
			[]string{"No Nodes to schedule to.", "default/p  denied"}},
		"no Pods": {`{apiVersion: v1, kind: Node, metadata: {name: n}}`, []string{"No Pods to admit."}},
		"annotation that the hook refuses": {`{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {kubewasm.dev/cpu: lots}}, spec: {containers: [{name: c, image: i}]}}`,
			[]string{`refused: `, `annotation kubewasm.dev/cpu is "lots"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := show(t, "-f", manifest(t, test.text))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("not printed: %s\n%s", want, out)
				}
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	tests := map[string]struct {
		args []string
		path string
		want string
	}{
		"missing file":   {args: []string{"-f", "/absent.yaml"}, want: "open /absent.yaml: no such file or directory"},
		"broken YAML":    {args: []string{"-f", manifest(t, "{apiVersion: v1, kind: Service}\n---\nkind: [")}, want: "document 2: "},
		"wrong type":     {args: []string{"-f", manifest(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 3}}")}, want: "document 1: "},
		"no kind":        {args: []string{"-f", manifest(t, "---\nhello: world")}, want: "document 1: it has no kind"},
		"no apiVersion":  {args: []string{"-f", manifest(t, "{kind: Pod, metadata: {name: p}}")}, want: "document 1: the Pod has no apiVersion"},
		"no name":        {args: []string{"-f", manifest(t, "{apiVersion: v1, kind: Node}")}, want: "document 1: the Node has no metadata.name"},
		"in a List":      {args: []string{"-f", manifest(t, "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}]}")}, want: "document 1: item 0: the Pod has no metadata.name"},
		"empty":          {args: []string{"-f", manifest(t, "")}, want: "no Node and no Pod in it"},
		"stray argument": {args: []string{"pods.yaml"}, want: `unexpected argument "pods.yaml"; name a file with -f`},
		"no Go":          {path: "/nowhere", want: "no Go toolchain: the command go is not in PATH"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.path != "" {
				t.Setenv("PATH", test.path)
				t.Setenv("XDG_CACHE_HOME", t.TempDir()) // In which no guest is built.
			}
			_, err := show(t, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want %s", err, test.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines:\n%v", err)
			}
		})
	}
}
