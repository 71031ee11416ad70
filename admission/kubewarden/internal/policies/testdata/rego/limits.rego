# As in Gatekeeper's library: containers have limits below a maximum.
package k8scontainerlimits

violation contains {"msg": msg} if {
	container := input.review.object.spec.containers[_]
	not container.resources.limits.memory
	msg := sprintf("container <%v> has no memory limit", [container.name])
}

violation contains {"msg": msg} if {
	container := input.review.object.spec.containers[_]
	memory := container.resources.limits.memory
	units.parse_bytes(memory) > units.parse_bytes(input.parameters.memory)
	msg := sprintf("container <%v> memory limit <%v> is higher than the maximum allowed of <%v>", [container.name, memory, input.parameters.memory])
}

violation contains {"msg": msg} if {
	container := input.review.object.spec.containers[_]
	cpu := container.resources.limits.cpu
	units.parse(cpu) > units.parse(input.parameters.cpu)
	msg := sprintf("container <%v> cpu limit <%v> is higher than the maximum allowed of <%v>", [container.name, cpu, input.parameters.cpu])
}
