# As OPA's own tutorial for admission control: the decision is an AdmissionReview.
package policy

main := {
	"apiVersion": "admission.k8s.io/v1",
	"kind": "AdmissionReview",
	"response": response,
}

default uid := ""

uid := input.request.uid

response := {"allowed": false, "uid": uid, "status": {"message": reason, "code": 422}} if {
	reason := concat(", ", deny)
	reason != ""
}

else := {"allowed": true, "uid": uid, "warnings": warnings}

deny contains msg if {
	input.request.kind.kind == "Pod"
	some label in data.labels
	not input.request.object.metadata.labels[label]
	msg := sprintf("missing label %q", [label])
}

deny contains msg if {
	input.request.kind.kind == "Pod"
	some i, container in input.request.object.spec.containers
	not trusted(container.image)
	msg := sprintf("container %d: image %s comes from nowhere", [i, container.image])
}

trusted(image) if {
	some registry in data.registries
	startswith(image, registry)
}

warnings := [sprintf("container %s: the tag latest may be another image tomorrow", [c.name]) |
	some c in input.request.object.spec.containers
	endswith(c.image, ":latest")
]
