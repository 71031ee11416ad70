package sched

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// PodGroupInfo is a group of Pods that are scheduled together.
type PodGroupInfo struct {
	// Type is "podgroup" or "compositepodgroup".
	Type, Namespace, Name string
	count                 int
	pods                  []core.Pod
}

// NumUnscheduledPods returns the number of Pods of the group that are to be
// scheduled.
func (g *PodGroupInfo) NumUnscheduledPods() int { return g.count }

// UnscheduledPods returns the Pods of the group that are to be scheduled.
func (g *PodGroupInfo) UnscheduledPods() []core.Pod {
	for i := len(g.pods); i < g.count; i++ {
		g.pods = append(g.pods, core.PodFromProto(append([]byte(nil), hostPodGroupPod(i)...)))
	}
	return g.pods
}

// TryPodGroup simulates the scheduling of the group of the call, as if the running
// Pods with the UIDs were gone. It returns the node of each of its Pods, and
// whether the group fits. It runs all plugins of the scheduler, this one on another
// instance, so the plugin needs two of them; nothing is bound or evicted. Only
// PodGroupPostFilter may call it, and its time counts. Natively no group fits.
func TryPodGroup(without ...string) ([]Nomination, *Status) {
	b := hostTryPodGroup(string(appendNames(nil, without)))
	if b == nil {
		return nil, Unschedulable("there is no scheduler")
	}
	return readTrial(b)
}

func readTrial(b []byte) (assignments []Nomination, status *Status) {
	s := &Status{}
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			s.code = abi.Code(r.Int64())
		case 2:
			s.reason = string(r.Bytes())
		case 3:
			assignments = append(assignments, readNomination(r.Bytes()))
		}
	}
	if s.IsSuccess() {
		return assignments, nil
	}
	return assignments, s
}

func readNomination(b []byte) (n Nomination) {
	for m := wire.NewReader(b); m.Next(); {
		switch m.Field {
		case 1:
			n.Namespace = string(m.Bytes())
		case 2:
			n.Name = string(m.Bytes())
		case 3:
			n.NodeName = string(m.Bytes())
		}
	}
	return n
}

func readPodGroup(b []byte) (g PodGroupInfo) {
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			g.Type = string(r.Bytes())
		case 2:
			g.Namespace = string(r.Bytes())
		case 3:
			g.Name = string(r.Bytes())
		case 4:
			g.count = int(r.Int64())
		}
	}
	return g
}

func readPlacement(b []byte) (p Placement) {
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			p.Name = string(r.Bytes())
		case 2:
			p.NodeNames = append(p.NodeNames, string(r.Bytes()))
		case 3:
			p.Assignments = append(p.Assignments, readNomination(r.Bytes()))
		}
	}
	return p
}

func appendPlacements(b []byte, placements []Placement) []byte {
	for _, p := range placements {
		m := wire.AppendBytes(nil, 1, p.Name)
		for _, name := range p.NodeNames {
			m = wire.AppendBytes(m, 2, name)
		}
		b = wire.AppendBytes(b, 1, m)
	}
	return b
}

func appendNominations(b []byte, nominations []Nomination) []byte {
	for _, n := range nominations {
		m := wire.AppendBytes(nil, 1, n.Namespace)
		m = wire.AppendBytes(m, 2, n.Name)
		m = wire.AppendBytes(m, 3, n.NodeName)
		b = wire.AppendBytes(b, 1, m)
	}
	return b
}
