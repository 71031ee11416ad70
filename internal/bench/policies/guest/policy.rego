# The policy of the benchmark in Rego.
package policy

main := {"response": {"allowed": false, "uid": input.request.uid, "status": {"message": concat(", ", deny)}}} if {
	count(deny) > 0
}

else := {"response": {"allowed": true, "uid": input.request.uid}}

deny contains msg if {
	some label in data.labels
	not input.request.object.metadata.labels[label]
	msg := sprintf("label %s is missing", [label])
}

deny contains msg if {
	some container in input.request.object.spec.containers
	not startswith(container.image, "registry.example.com/")
	msg := sprintf("image %s comes from elsewhere", [container.image])
}
