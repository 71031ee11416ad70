package main

import (
	"strings"
	"testing"
)

func TestRunConverts(t *testing.T) {
	module := built(t, "../../examples/admission/crontab-versions")
	review := file(t, "review.yaml", `
apiVersion: apiextensions.k8s.io/v1
kind: ConversionReview
request:
  uid: "1"
  desiredAPIVersion: stable.example.com/v1
  objects:
  - {apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: backup, namespace: shop}, spec: {hostPort: "db:5432", cronSpec: "@daily"}}
  - {apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: bad, namespace: shop}, spec: {hostPort: db, cronSpec: "@daily"}}
`)
	code, out, err := kubewasm(t, "run", "-f", review, module)
	if code != 2 || err != "" {
		t.Errorf("code is %d, %s", code, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "CronTab shop/backup  converted  ") || !strings.HasSuffix(lines[1], `"spec":{"host":"db","port":5432,"schedule":{"cron":"@daily"}}}`) ||
		!strings.HasPrefix(lines[2], "CronTab shop/bad     refused ") || !strings.HasSuffix(lines[2], `spec.hostPort: "db" has no port`) {
		t.Errorf("output is\n%s", out)
	}
	pod := file(t, "pod.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: web}}`)
	if code, _, err := kubewasm(t, "run", "-f", pod, module); code != 1 || !strings.Contains(err, "the module only converts: it is asked by a ConversionReview") {
		t.Errorf("code is %d, %s", code, err)
	}
	if code, out, err := kubewasm(t, "inspect", module); code != 0 || !strings.Contains(out, "convert, configure") {
		t.Errorf("code is %d, %s\n%s", code, err, out)
	}
}
