package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// maxTime is longer than any call of a replay.
const maxTime = 1000 * time.Hour

// script is the recorded data of a call.
type script struct {
	player  *Player
	closely bool
	// scopes are those of the guest's functions that run, the innermost last.
	scopes []*scope
	top    *scope
	// known are the answers of the sequence by the digests of their questions.
	known map[questionKey]*node
	// moved are addresses of the recording that differ in this module.
	moved map[uint64]uint64
	last  uint64

	// stops is set if the recorded call was stopped for its time, and masked if numbers in it may
	// be masked by 0.
	stops  bool
	masked bool
	// loose is set for the older module of a comparison.
	loose bool

	missing   string
	elsewhere int
}

// node is an event with those within it.
type node struct {
	*recording.Event
	children []*node
	used     bool
	// result is that of HostReturned or Invoked, and returned whether there is one.
	result   []uint64
	returned bool
}

// scope holds the events during one run of a guest's function.
type scope struct {
	// steps are the events at this level, hosts those of them that are calls of host
	// functions which the recording answers.
	steps  []*node
	hosts  []*node
	next   int
	values []uint64
	random []byte
}

// maxNodes is the maximum depth of nested calls in a recording: more than in package host.
const maxNodes = 64

// begin begins a call.
func (s *script) begin(p *Player, events []recording.Event) {
	s.player, s.missing, s.elsewhere = p, "", 0
	rest := events
	steps := s.parse(&rest, 0)
	s.top = s.scopeOf(steps)
	s.scopes = append(s.scopes[:0], s.top)
}

// forget forgets the answers of another sequence.
func (s *script) forget() {
	s.known, s.moved = map[questionKey]*node{}, map[uint64]uint64{}
}

// parse reads events as far as the end of the function that contains them.
func (s *script) parse(rest *[]recording.Event, depth int) (list []*node) {
	for len(*rest) > 0 {
		e := &(*rest)[0]
		if e.Kind == recording.HostReturned || e.Kind == recording.Invoked {
			return list
		}
		*rest = (*rest)[1:]
		n := &node{Event: e}
		list = append(list, n)
		if e.Kind != recording.Host && e.Kind != recording.Invoke || depth >= maxNodes {
			continue
		}
		n.children = s.parse(rest, depth+1)
		if len(*rest) > 0 {
			n.result, n.returned = (*rest)[0].Args, true
			*rest = (*rest)[1:]
		}
	}
	return list
}

// scopeOf makes a scope of events.
func (s *script) scopeOf(steps []*node) *scope {
	sc := &scope{steps: steps}
	for _, n := range steps {
		if n.Kind != recording.Host {
			continue
		}
		if answersItself(s.player.version, n.Index) {
			for _, c := range n.children {
				switch c.Kind {
				case recording.Value:
					sc.values = append(sc.values, c.Args...)
				case recording.Random:
					sc.random = append(sc.random, c.Data...)
				}
			}
			continue
		}
		sc.hosts = append(sc.hosts, n)
		if key, ok := s.question(n); ok && s.known != nil {
			if old := s.known[key]; old == nil || answered(n) || !answered(old) {
				s.known[key] = n
			}
		}
	}
	return sc
}

func (s *script) scope() *scope { return s.scopes[len(s.scopes)-1] }

// answered reports whether an answer has its bytes.
func answered(n *node) bool {
	for _, c := range n.children {
		if c.Kind == recording.Write && len(c.Data) == 0 && len(c.Args) == 3 && c.Args[2] != 0 {
			return false
		}
	}
	return n.returned
}

// question returns the question to a host function: its index, the parameters that are no
// addresses, and the bytes that it read. ok is false if it was no question: the function took
// something.
func (s *script) question(n *node) (key questionKey, ok bool) {
	q := newQuestion(s.scalars(nil, n.Index, n.Args))
	for _, c := range n.children {
		switch c.Kind {
		case recording.Read, recording.Text:
			q.add(c.Data)
		case recording.Invoke:
			return key, false
		}
	}
	return q.key(), true
}

// questionKey is the digest of a question. Bytes stored once in a recording may be in any number of
// questions.
type questionKey [sha256.Size]byte

type question struct{ hash hash.Hash }

// newQuestion begins a question with the numbers that it has.
func newQuestion(scalars []byte) question {
	q := question{sha256.New()}
	q.add(scalars)
	return q
}

// add adds bytes that are passed.
func (q question) add(data []byte) {
	var length [binary.MaxVarintLen64]byte
	q.hash.Write(binary.AppendUvarint(length[:0], uint64(len(data))))
	q.hash.Write(data)
}

func (q question) key() (k questionKey) {
	q.hash.Sum(k[:0])
	return k
}

// scalars appends the parameters of a host function that are no addresses.
func (s *script) scalars(b []byte, index int, params []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(index))
	var memory uint16
	if index < len(s.player.version.Imports) {
		memory = s.player.version.Imports[index].Memory
	}
	for i, v := range params {
		if i >= 16 || memory&(1<<i) == 0 {
			b = binary.AppendUvarint(b, v)
		}
	}
	return b
}

// host answers a call of a host function.
func (s *script) host(inst *host.Instance, index int, stack []uint64) {
	types := s.player.version.Imports[index].Params
	params := append([]uint64{}, stack[:len(types)]...)
	for i, t := range types { // Of 32 bits the other half may be anything, and is recorded as 0.
		params[i] = recording.Narrow(params[i], t)
	}
	sc := s.scope()
	for sc.next < len(sc.hosts) && sc.hosts[sc.next].used {
		sc.next++
	}
	if sc.next < len(sc.hosts) {
		n := sc.hosts[sc.next]
		if n.Index == index && (s.closely || s.asks(n, params) && s.reads(inst, n, params)) {
			n.used = true
			s.perform(inst, n, params, stack)
			return
		}
	}
	if s.closely {
		s.unknown(inst, s.player.name(index)+", in another order than recorded")
	}
	// Elsewhere in the call.
	for _, n := range sc.hosts {
		if !n.used && n.Index == index && s.asks(n, params) && s.reads(inst, n, params) {
			n.used = true
			s.elsewhere++
			s.perform(inst, n, params, stack)
			return
		}
	}
	if n := s.find(inst, index, params); n != nil {
		s.elsewhere++
		s.perform(inst, n, params, stack)
		return
	}
	if s.derive(inst, index, params, stack) || s.take(inst, index, params) {
		s.elsewhere++
		return
	}
	s.unknown(inst, s.describe(inst, index, params))
}

// asks reports whether the guest asks with the parameters of n. Effects are accepted with any.
func (s *script) asks(n *node, params []uint64) bool {
	if effect(n) {
		return len(n.Args) == len(params)
	}
	for i, v := range n.Args {
		if i < len(params) && v != params[i] && !s.inMemory(n, i) && !(s.masked && v == 0) {
			return false
		}
	}
	return len(n.Args) == len(params)
}

// reads reports whether the guest asks with the bytes of n. Effects, which have no answer, are
// accepted with any.
func (s *script) reads(inst *host.Instance, n *node, params []uint64) bool {
	if effect(n) {
		return true
	}
	for _, c := range n.children {
		if c.Kind != recording.Read {
			continue
		}
		got, err := inst.Dialect().Look(s.address(n, params, c.Args, 0), s.address(n, params, c.Args, 1))
		if err != nil || !s.same(got, c.Data) {
			return false
		}
	}
	return true
}

// same reports whether bytes equal the recorded ones, as far as these are not masked. A guest
// derives different data from a masked text than from the original: where the recorded module asks
// in the same place, only the length counts.
func (s *script) same(got, recorded []byte) bool {
	if bytes.Equal(got, recorded) || !s.masked || len(got) != len(recorded) {
		return bytes.Equal(got, recorded)
	}
	if s.loose {
		return true
	}
	for i, c := range recorded {
		if c != got[i] && c != 'x' {
			return false
		}
	}
	return true
}

// effect reports whether a host function takes something without an answer.
func effect(n *node) bool {
	for _, c := range n.children {
		switch c.Kind {
		case recording.Write, recording.Put, recording.Invoke, recording.Input, recording.Abort:
			return false
		}
	}
	return n.returned && len(n.result) == 0
}

// find returns the answer to a question from another call of the sequence.
func (s *script) find(inst *host.Instance, index int, params []uint64) *node {
	scalars := s.scalars(nil, index, params)
	if n := s.known[newQuestion(scalars).key()]; n != nil {
		return n
	}
	// With the bytes that the guest passes in its memory.
	if data, ok := s.passed(inst, index, params); ok {
		q := newQuestion(scalars)
		q.add(data)
		return s.known[q.key()]
	}
	return nil
}

// passed returns the bytes that the guest passes: those of the first pair of parameters in
// its memory.
func (s *script) passed(inst *host.Instance, index int, params []uint64) ([]byte, bool) {
	memory := s.player.version.Imports[index].Memory
	for i := 0; i+1 < len(params); i++ {
		if memory&(3<<i) == 3<<i {
			data, err := inst.Dialect().Look(uint32(params[i]), uint32(params[i+1]))
			return data, err == nil && len(data) <= 1<<20
		}
	}
	return nil, false
}

// take takes the data that the guest hands over by a function without an answer.
func (s *script) take(inst *host.Instance, index int, params []uint64) bool {
	im := &s.player.version.Imports[index]
	switch {
	case len(im.Results) == 0 && len(params) == 2 && im.Memory == 0b11:
		inst.Read(uint32(params[0]), uint32(params[1]))
		return true
	case len(im.Results) == 0 && len(params) != 0 && im.Memory == 0:
		return true // Numbers alone.
	}
	return false
}

// perform repeats the actions of the host function.
func (s *script) perform(inst *host.Instance, n *node, params, stack []uint64) {
	for _, c := range n.children {
		s.step(inst, n, params, c)
	}
	if !n.returned {
		inst.Abort(errors.New("the host function did not return"))
	}
	if len(n.result) > 0 {
		stack[0] = n.result[0]
	}
}

// address returns the address or the length in c.Args[i] of an event within a host function: the
// parameter that had it in the recording, or its new place.
func (s *script) address(n *node, params, args []uint64, i int) uint32 {
	if i >= len(args) {
		return 0
	}
	if n != nil {
		for k := range n.Args {
			if k < len(params) && uint32(n.Args[k]) == uint32(args[i]) && s.inMemory(n, k) && s.pair(n, k, args, i) {
				return uint32(params[k])
			}
		}
	}
	return uint32(s.move(args[i]))
}

func (s *script) inMemory(n *node, k int) bool {
	if n.Index >= len(s.player.version.Imports) {
		return false
	}
	return k < 16 && s.player.version.Imports[n.Index].Memory&(1<<k) != 0
}

// pair reports whether parameters k-i and following are the address and the length in args, so
// that equal numbers are not taken for one another.
func (s *script) pair(n *node, k int, args []uint64, i int) bool {
	if len(args) < 2 {
		return true
	}
	first := k - i
	if first < 0 || first+1 >= len(n.Args) {
		return false
	}
	return uint32(n.Args[first]) == uint32(args[0]) && uint32(n.Args[first+1]) == uint32(args[1])
}

// move returns the new place of an address.
func (s *script) move(v uint64) uint64 {
	if to, ok := s.moved[v]; ok {
		return to
	}
	return v
}

// step repeats an action of the host.
func (s *script) step(inst *host.Instance, n *node, params []uint64, c *node) {
	d := inst.Dialect()
	arg := func(i int) uint64 {
		if i < len(c.Args) {
			return c.Args[i]
		}
		return 0
	}
	switch c.Kind {
	case recording.Read:
		inst.Read(s.address(n, params, c.Args, 0), s.address(n, params, c.Args, 1))
	case recording.Write:
		buf, limit := s.address(n, params, c.Args, 0), s.address(n, params, c.Args, 1)
		data := c.Data
		if uint64(len(data)) != arg(2) {
			if uint64(limit) >= arg(2) {
				s.unknown(inst, "the bytes of an answer that exceeded the buffer")
			}
			inst.WriteLength(buf, limit, arg(2))
			return
		}
		inst.Write(buf, limit, data)
	case recording.Put:
		if err := d.Put(s.address(n, params, c.Args, 0), c.Data); err != nil {
			inst.Abort(err)
		}
	case recording.Text:
		d.Text(s.address(n, params, c.Args, 0))
	case recording.Charge:
		d.Charge(int(min(arg(0), math.MaxInt32)))
	case recording.Spend:
		inst.Spend(int64(arg(0)))
	case recording.Input:
		d.WriteStdin(c.Data)
	case recording.Invoke:
		args := make([]uint64, len(c.Args))
		for i, v := range c.Args {
			args[i] = s.move(v)
		}
		if c.Index >= len(s.player.version.Exports) || len(args) != len(s.player.version.Exports[c.Index].Params) {
			inst.Abort(fmt.Errorf("the recording calls export %d with %d arguments", c.Index, len(args)))
		}
		s.scopes = append(s.scopes, s.scopeOf(c.children))
		result := d.Invoke(host.ExportIndex(c.Index), args...)
		s.scopes = s.scopes[:len(s.scopes)-1]
		if len(c.result) > 0 && c.result[0] != result && c.result[0] >= 1024 {
			s.moved[c.result[0]] = result
		}
	case recording.Abort:
		err := errors.New(string(c.Data))
		if s.stops {
			err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
		}
		inst.Abort(err)
	case recording.Confidential:
		inst.Confidential(confidential.Shape(arg(0)), uint32(arg(1)), arg(2) != 0)
	}
}

// steps repeats the actions of the host in a call of several exports.
func (s *script) steps(inst *host.Instance) {
	for _, c := range s.top.steps {
		s.step(inst, nil, nil, c)
	}
}

// unknown ends the call for a question that was not recorded.
func (s *script) unknown(inst *host.Instance, question string) {
	if s.missing == "" {
		s.missing = question
	}
	inst.Abort(fmt.Errorf("%w to %s", errUnrecorded, question))
}

// describe returns the guest's question, for messages.
func (s *script) describe(inst *host.Instance, index int, params []uint64) string {
	im := &s.player.version.Imports[index]
	text := im.String()
	for i, v := range params {
		if im.Memory&(1<<i) == 0 {
			text += fmt.Sprintf(" %#x", v)
		}
	}
	// Of two parameters the first is a buffer for the answer, except for a function that acts.
	if data, ok := s.passed(inst, index, params); ok && (len(params) > 2 || roleOf(im, s.player.version.Dialect != "") == acts) {
		text += fmt.Sprintf(" %.100q", data)
	}
	return text
}

// derive answers a question about a part of an object from a larger part.
func (s *script) derive(inst *host.Instance, index int, params, stack []uint64) bool {
	im := &s.player.version.Imports[index]
	if im.Module != abi.ModuleObjects || im.Name != "object_part" || len(params) != 5 {
		return false
	}
	ref, part, mask := params[0], params[1], params[2]
	var whole []byte
	found := false
	for _, n := range s.known {
		if n.Index != index || len(n.Args) != 5 || n.Args[0] != ref || uint32(n.Args[1]) != uint32(part) || n.Args[2]&mask != mask {
			continue
		}
		for _, c := range n.children {
			if c.Kind == recording.Write && answered(n) {
				whole, found = c.Data, true
			}
		}
	}
	if !found {
		return false
	}
	data, ok := fieldsOf(whole, mask)
	if !ok {
		return false
	}
	stack[0] = uint64(inst.Write(uint32(params[3]), uint32(params[4]), data))
	return true
}

// fieldsOf returns the fields of a message whose bits are set.
func fieldsOf(message []byte, mask uint64) ([]byte, bool) {
	var out []byte
	for rest := message; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, false
		}
		if number < 64 && mask&(1<<uint(number)) != 0 {
			out = append(out, rest[:n]...)
		}
		rest = rest[n:]
	}
	return out, true
}
