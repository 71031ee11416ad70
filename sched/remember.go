package sched

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// memory is what a guest answered about nodes. The answers themselves stand with the
// encoded Nodes, so that to find one takes no more than to find the Node, and they go
// when it does.
//
// There are two reasons not to ask again. With Args.RememberByProjection the answer
// about a Pod is that about all Pods that are equal in their declared fields. And
// without the names of Nodes, those that are equal are one object: then each call about
// one of them in the same state of a cycle has the same arguments.
type memory struct {
	// last is the class that was given out last.
	last atomic.Uint64

	mu sync.Mutex
	// classes are those of the Pods of one version of the guest, by the bytes of
	// their declared fields.
	of      *pinned
	classes map[string]class
	// numbers are those of the refusals that are known, by which an answer says them,
	// and lastNumber is the one that was given out last.
	numbers    map[refusal]uint64
	lastNumber uint64
	// refusals has each at its number modulo maxRefusals.
	refusals [maxRefusals]atomic.Pointer[numbered]
}

// class is of calls that have the same answer about the same node, 0 if none are known
// to: those for Pods that are equal in what the guest reads of them, in one version of
// the guest, or those in one state of one cycle. No number is used again.
type class uint64

// refusal is the code and the reason of a node that does not pass.
type refusal struct {
	code   abi.Code
	reason string
}

// numbered is a refusal that has a number.
type numbered struct {
	refusal
	number uint64
}

const (
	// maxClasses is how many classes are known at the same time. Beyond it all are
	// forgotten: a Pod whose projection is unlike all others has no use for one.
	maxClasses = 1024
	// maxRefusals is how many refusals are known at the same time, the last ones: more
	// than a cycle has, for most guests, and some have others for each Pod.
	maxRefusals = 4096
	// answerBits are those that an answer has beside its class. With 100,000 classes a
	// second the others last for 4 months; afterwards nothing more is remembered.
	answerBits = 24
)

// next returns a class that no call has had.
func (m *memory) next() class {
	if c := m.last.Add(1); c < 1<<(64-answerBits) {
		return class(c)
	}
	m.last.Store(1 << (64 - answerBits)) // It never begins anew.
	return 0
}

// classOf returns the class of a Pod, 0 if there is none.
func (m *memory) classOf(version *pinned, projection *objects.Projection, pod *corev1.Pod) class {
	b, ok, err := projection.DeclaredPod(pod)
	if err != nil || !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of != version || len(m.classes) >= maxClasses {
		m.of, m.classes = version, map[string]class{}
	}
	c, ok := m.classes[string(b)]
	if !ok {
		c = m.next()
		m.classes[string(b)] = c
	}
	return c
}

// noteOf says in which of the notes of a Node the answer of f for a class stands: there
// is room for two classes at a time. An answer is the class and, in the lower
// answerBits, the score, or the number of a refusal, 0 if the node passes.
func noteOf(f abi.Function, c class, node *objects.Object) *atomic.Uint64 {
	if f == abi.Score {
		return &node.Notes[2+c%2]
	}
	return &node.Notes[c%2]
}

// answer returns what the guest answered for the class, if that is remembered.
//
// 0 allocs if the node passes.
func (m *memory) answer(f abi.Function, c class, node *objects.Object) (result uint64, s *fwk.Status, ok bool) {
	note := noteOf(f, c, node).Load()
	if class(note>>answerBits) != c {
		return 0, nil, false
	}
	n := note & (1<<answerBits - 1)
	if f == abi.Score {
		return abi.PackScore(int32(n), abi.Success), nil, true
	}
	if n != 0 {
		r := m.refusals[n%maxRefusals].Load()
		if r.number != n {
			return 0, nil, false // Others came after it.
		}
		return uint64(uint32(r.code)), statusOf(r.code, r.reason), true
	}
	return 0, nil, true
}

// remember keeps what the guest answered, unless it is a failure or a score that has no
// room.
func (m *memory) remember(f abi.Function, c class, node *objects.Object, result uint64, reason string) {
	n := uint64(0)
	switch code := abi.Code(int32(uint32(result))); {
	case f == abi.Score:
		score, code := abi.UnpackScore(result)
		if code != abi.Success || score < 0 || score >= 1<<answerBits {
			return
		}
		n = uint64(score)
	case code == abi.Unschedulable || code == abi.UnschedulableAndUnresolvable:
		n = m.number(refusal{code, reason})
	case code != abi.Success:
		return
	}
	noteOf(f, c, node).Store(uint64(c)<<answerBits | n)
}

// number returns the number of a refusal, which is not 0.
func (m *memory) number(r refusal) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.numbers[r]; ok {
		return n
	}
	if m.numbers == nil {
		m.numbers = map[refusal]uint64{}
	}
	if m.lastNumber++; m.lastNumber == 1<<answerBits {
		// Numbers come again. The answers that have them are of classes that nobody
		// asks for any more.
		m.lastNumber, m.of = 1, nil
	}
	n := m.lastNumber
	at := &m.refusals[n%maxRefusals]
	if old := at.Load(); old != nil {
		delete(m.numbers, old.refusal)
	}
	at.Store(&numbered{r, n})
	m.numbers[r] = n
	return n
}
