# As in Gatekeeper's library: objects must have labels that match.
package k8srequiredlabels

get_message(parameters, _default) := parameters.message if parameters.message

get_message(parameters, _default) := _default if not parameters.message

violation contains {"msg": msg, "details": {"missing_labels": missing}} if {
	provided := {label | input.review.object.metadata.labels[label]}
	required := {label | label := input.parameters.labels[_].key}
	missing := required - provided
	count(missing) > 0
	def_msg := sprintf("you must provide labels: %v", [missing])
	msg := get_message(input.parameters, def_msg)
}

violation contains {"msg": msg} if {
	value := input.review.object.metadata.labels[key]
	expected := input.parameters.labels[_]
	expected.key == key
	expected.allowedRegex != ""
	not regex.match(expected.allowedRegex, value)
	def_msg := sprintf("label <%v: %v> does not satisfy allowed regex: %v", [key, value, expected.allowedRegex])
	msg := get_message(input.parameters, def_msg)
}
