# The decision is a set of messages.
package kubernetes.admission

deny contains msg if {
	input.request.operation == "DELETE"
	input.request.oldObject.metadata.annotations.protected == "true"
	not "system:masters" in input.request.userInfo.groups
	msg := sprintf("%s/%s is protected, %s", [input.request.namespace, input.request.name, input.request.userInfo.username])
}
