package sched

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// confide records the confidential values of the Pod of the call.
func confide(inst *host.Instance, s *confidential.Stain) {
	addEnvironment(inst.Rule(), inst.State().(*instance).call.of, s)
}

// stainOf returns the confidential values that the plugin may have seen in a cycle about a Pod.
// Objects that it looked up are not known.
func (p *Plugin) stainOf(pod *corev1.Pod) *confidential.Stain {
	s := new(confidential.Stain)
	rule := &p.args.Confidential
	if slices.ContainsFunc(p.args.Objects, func(g host.ObjectGrant) bool { return rule.SealsResource(g.Resource) }) || rule.Extended() && rule.ShapeOf("", "Pod").Sealed() {
		s.Seal()
	}
	addEnvironment(rule, pod, s)
	return s
}

// addEnvironment adds the values of the environment of a Pod's containers.
func addEnvironment(rule *confidential.Rule, pod *corev1.Pod, s *confidential.Stain) {
	if pod == nil || !rule.Environment() {
		return
	}
	add := func(env []corev1.EnvVar) {
		for i := range env {
			s.AddText(env[i].Value)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			add(list[i].Env)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].Env)
	}
}
