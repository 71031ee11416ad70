package sched

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// confide notes the confidential values of the Pod that the call is about.
func confide(inst *host.Instance, s *confidential.Stain) {
	addEnvironment(inst.Rule(), inst.State().(*instance).call.of, s)
}

// stainOf returns what the plugin may have seen of confidential values in a cycle about a Pod. What
// it has looked up is not known.
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
