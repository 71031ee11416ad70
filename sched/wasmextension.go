package sched

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// peerFunctions returns the functions of the guest that are called, and those that are offered to
// the scheduler.
//
// As in its own host, a guest that takes no part in the choice of a node or in binding is refused,
// and some functions are called only if the guest has another one. Its own host also refuses
// combinations for which it has no type, which no rule describes.
func (p *Plugin) peerFunctions() (called, offered abi.Mask, err error) {
	has := wasmextension.Functions(p.guest.Exports)
	called, needed := wasmextension.Called(has)
	if called&wasmextension.Alone == 0 {
		return 0, 0, fmt.Errorf("the guest has %s but none of %s, and kube-scheduler-wasm-extension refuses it too", has, wasmextension.Alone)
	}
	if lone := has &^ called; lone != 0 {
		p.logger.Warn("functions of the guest are not called, as in kube-scheduler-wasm-extension",
			"plugin", p.guest.Name(), "functions", lone.String(), "missing", needed.String())
	}
	// When a cycle begins, when its Pod has a node, and when it is over.
	offered = called | abi.MaskOf(abi.PreFilter)
	if called&binds != 0 {
		offered |= abi.MaskOf(abi.Reserve, abi.PostBind)
	}
	return called, offered, nil
}

// peerEvents are the cluster events of a guest of package wasmextension.
func peerEvents(list []wasmextension.Event) (events []event) {
	if len(list) == 0 {
		list = wasmextension.Defaults
	}
	for _, e := range list {
		events = append(events, event{resource: e.Resource, action: e.Action})
	}
	return events
}

// peerScheduler offers the plugin's scheduler to guests of package wasmextension.
type peerScheduler struct{ p *Plugin }

func (s peerScheduler) Config() []byte { return s.p.config }

func (s peerScheduler) Call(inst *host.Instance) *wasmextension.Call {
	inst.State().(*instance).call.own = true
	return &inst.State().(*instance).peer
}

func (s peerScheduler) Passed(inst *host.Instance) (nodes []*corev1.Node) {
	c := &inst.State().(*instance).call
	c.asks(inst)
	for n := range all(c.nodes) {
		nodes = append(nodes, n.Node())
	}
	return nodes
}

func (s peerScheduler) Node(inst *host.Instance, name string) *corev1.Node {
	if info := s.p.findNode(inst, &inst.State().(*instance).call, name); info != nil {
		return info.Node()
	}
	return nil
}

func (s peerScheduler) Images(inst *host.Instance, node string) []schedmsg.Image {
	if info := s.p.findNode(inst, &inst.State().(*instance).call, node); info != nil && info.Node() != nil {
		return s.p.framework.Images(info)
	}
	return nil
}

func (s peerScheduler) Nodes(inst *host.Instance) (nodes []*corev1.Node) {
	c := &inst.State().(*instance).call
	c.asks(inst)
	list := c.nodes
	if c.snapshot && s.p.handle != nil {
		list = s.p.snapshot(inst)
	}
	for n := range all(list) {
		nodes = append(nodes, n.Node())
	}
	return nodes
}

func (s peerScheduler) EncodedNode(node *corev1.Node) []byte {
	return s.p.objects.Node(node).Bytes()
}

func (s peerScheduler) EncodedPod(pod *corev1.Pod) []byte {
	return s.p.objects.Pod(pod).Bytes()
}

// severityOf returns the minimum severity of package wasmextension that a logger accepts.
func severityOf(logger *slog.Logger) int32 {
	for severity, level := range levels {
		if logger.Enabled(context.Background(), level) {
			return int32(severity)
		}
	}
	return int32(len(levels))
}

// levels are those of the severities info, warning and error.
var levels = []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func (s peerScheduler) Severity() int32 { return s.p.peers.severity }

func (s peerScheduler) Logs(severity int32) bool {
	return severity >= s.p.peers.severity && severity < int32(len(levels)) && s.p.peers.logger.Enabled(context.Background(), levels[severity])
}

// maxAttributes is the maximum number of attributes kept of a line, as in package host.
const maxAttributes = 64

func (s peerScheduler) Log(inst *host.Instance, severity int32, msg string, texts []string) {
	stain := inst.Stain()
	msg = stain.Text(msg)
	if stain.Sealed() {
		texts = nil
	}
	attributes := [2]slog.Attr{slog.String("function", inst.Calling())}
	if len(texts) > 0 {
		// In a group, so that a guest cannot pass for another plugin.
		group := make([]slog.Attr, 0, (len(texts)+1)/2)
		for texts = texts[:min(len(texts), 2*maxAttributes)]; len(texts) > 1; texts = texts[2:] {
			group = append(group, slog.String(stain.Text(texts[0]), stain.Text(texts[1])))
		}
		if len(texts) > 0 {
			group = append(group, slog.String("!BADKEY", stain.Text(texts[0]))) //nolint:sloglint // The key is slog's own.
		}
		attributes[1] = slog.Attr{Key: "guest", Value: slog.GroupValue(group...)}
	}
	s.p.peers.logger.LogAttrs(inst.Dialect().Context(), levels[severity], msg, attributes[:]...)
}

func (s peerScheduler) Report(inst *host.Instance, e *schedmsg.Event) {
	if s.p.handle == nil {
		inst.Abort(errNoHandle)
	}
	s.p.report(&inst.State().(*instance).call, e)
}

func (s peerScheduler) WaitingPod(inst *host.Instance, uid types.UID) []byte {
	if s.p.handle == nil {
		inst.Abort(errNoHandle)
	}
	return remember(inst, string(uid), func() []byte {
		w := s.p.handle.WaitingPod(uid)
		if w == nil {
			return nil
		}
		return s.EncodedPod(w.GetPod())
	})
}

func (s peerScheduler) RejectWaitingPod(inst *host.Instance, uid types.UID, reason string) bool {
	if s.p.handle == nil {
		inst.Abort(errNoHandle)
	}
	return inst.State().(*instance).call.effect(inst, string(uid), func() bool {
		w := s.p.handle.WaitingPod(uid)
		if w != nil && !s.p.monitored {
			w.Reject(s.p.guest.Name(), reason)
		}
		return w != nil
	}) != 0
}
