package sched

import (
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// The mode Monitor: the guest is called as ever, and the scheduler gets the answers of a plugin
// whose failures are ignored.

// answer returns the status of the guest or, in the mode Monitor, neutral instead of one that has an
// effect on scheduling. Skip has none, except for Bind: it leaves out other functions of the guest.
func (p *Plugin) answer(f abi.Function, pod *corev1.Pod, s, neutral *Status) *Status {
	if !p.monitored {
		return s
	}
	switch s.Code() {
	case abi.Skip:
		return s
	case neutral.Code():
	default:
		p.tell(f, pod, "", s)
	}
	return neutral
}

// leavingOut returns the status without an effect for one of PreFilter and PreScore: a guest that
// rejects the Pod is not asked about nodes.
func leavingOut(s *Status) *Status {
	if s == nil {
		return nil
	}
	return skip
}

// tell logs an answer of the guest that has no effect.
func (p *Plugin) tell(f abi.Function, pod *corev1.Pod, node string, s *Status) {
	attrs := []any{slog.String("plugin", p.guest.Name()), slog.String("function", f.String())}
	if pod != nil {
		attrs = append(attrs, slog.String("pod", pod.Namespace+"/"+pod.Name))
	}
	if node != "" {
		attrs = append(attrs, slog.String("node", node))
	}
	attrs = append(attrs, slog.String("decided", s.Code().String()))
	if reasons := s.Reasons(); len(reasons) != 0 {
		attrs = append(attrs, slog.String("reason", strings.Join(reasons, ", ")))
	}
	p.callLogger.Info("monitored: the answer of the plugin has no effect", attrs...)
}

// onNodeAnswer is answer for a node. Of the nodes that the guest rejects for a Pod, the first is
// logged.
func (p *Plugin) onNodeAnswer(f abi.Function, c *Cycle, node NodeInfo, s *Status) *Status {
	if p.monitored && s != nil && c != nil && !c.clone && c.told.CompareAndSwap(false, true) {
		p.tell(f, c.of, node.Node().GetName(), s)
	}
	if p.monitored {
		return nil
	}
	return s
}
