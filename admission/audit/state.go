package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is the state of a cluster's objects, kept from one run to the next.
type state struct {
	// ids number the policies by name and version, for use in results.
	ids      map[policyKey]uint32
	policies []policyKey
	// sets are the interned sets of policies.
	sets map[string]*set
	// namespaces holds digests of the labels of namespaces.
	namespaces map[string][16]byte
	resources  map[schema.GroupVersionResource]*known
}

type policyKey struct{ name, version string }

// set is a set of policies, by number, in order.
type set []uint32

func (s *set) has(id uint32) bool {
	if s == nil {
		return false
	}
	_, ok := slices.BinarySearch(*s, id)
	return ok
}

// known is the state of the objects of a resource.
type known struct {
	// position is the version of the resource up to which objects has all changes, empty if there
	// is none. plan is the digest of the inputs that the results of all objects depend on.
	position, plan string
	objects        map[objectKey]*record
	// repeat holds the objects that a policy is asked about again, even if they do not change.
	repeat map[objectKey]bool
}

type objectKey struct{ namespace, name string }

// record is the state of an object.
type record struct {
	version string
	sum     [16]byte
	// passed, unmatched and volatile are three sets of policies: those without a finding on the
	// object, those whose rules do not match it, and those that pass and are asked again.
	passed, unmatched, volatile *set
	findings                    []finding
	// run is the number of the last run that has read the object. It is not kept.
	run uint32
}

// finding is an objection of a policy to an object.
type finding struct {
	policy  uint32
	outcome Outcome
	// again reports whether the policy is asked again.
	again   bool
	code    int32
	message string
	uid     string
	// since is the time at which it was found first, in Unix seconds.
	since int64
}

// repeats reports whether a policy is asked about the object again in any case.
func (r *record) repeats() bool {
	return r.volatile != nil || slices.ContainsFunc(r.findings, func(f finding) bool { return f.again })
}

func newState() *state {
	return &state{
		ids: map[policyKey]uint32{}, sets: map[string]*set{},
		namespaces: map[string][16]byte{}, resources: map[schema.GroupVersionResource]*known{},
	}
}

// id returns the number of a policy, and reports whether it is new.
func (s *state) id(k policyKey) (id uint32, isNew bool) {
	id, ok := s.ids[k]
	if !ok {
		id = uint32(len(s.policies))
		s.ids[k], s.policies = id, append(s.policies, k)
	}
	return id, !ok
}

// intern sorts ids and returns the interned set, nil if it is empty.
func (s *state) intern(ids []uint32) *set {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	var key [64]byte
	k := key[:0]
	for _, id := range ids {
		k = binary.AppendUvarint(k, uint64(id))
	}
	if known, ok := s.sets[string(k)]; ok {
		return known
	}
	own := set(slices.Clone(ids))
	s.sets[string(k)] = &own
	return &own
}

func (s *state) resource(gvr schema.GroupVersionResource) *known {
	k := s.resources[gvr]
	if k == nil {
		k = &known{objects: map[objectKey]*record{}, repeat: map[objectKey]bool{}}
		s.resources[gvr] = k
	}
	return k
}

func (k *known) put(key objectKey, r *record) {
	k.objects[key] = r
	if r.repeats() {
		k.repeat[key] = true
	} else {
		delete(k.repeat, key)
	}
}

func (k *known) remove(key objectKey) {
	delete(k.objects, key)
	delete(k.repeat, key)
}

// The file of a state is a journal: a header, and frames with a length and a checksum, each of
// which holds a change. Partial frames at the end, left by a crash, are dropped. Every prefix of
// the file is a state from which a run can continue.
const (
	journalHeader = "kubewasm audit state 1\n"
	frameBytes    = 8 // The length and the CRC-32C of the rest.
	// maxFrame is the maximum length of a frame: a record with the findings of an object.
	maxFrame = 64 << 20
)

// The kinds of frames.
const (
	framePolicy    = 'p'
	frameNamespace = 'n'
	frameResource  = 'r' // The resource of the frames after it.
	frameObject    = 'o'
	frameGone      = 'g'
	framePosition  = 'c'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal is the file of a state, open to be appended to. A nil journal discards everything.
type journal struct {
	// name is the name of the file. A rewritten file has a temporary name at first.
	name string
	file *os.File
	// frames is the number of frames in the file, and buffer holds frames that are not written yet.
	frames int
	buffer []byte
	// resource is the resource of the last frame.
	resource schema.GroupVersionResource
	err      error
}

// openState reads the state in a file, which it creates if it does not exist. lost is the number of
// bytes dropped at the end.
func openState(name string) (s *state, j *journal, lost int, err error) {
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, 0, fmt.Errorf("read the state of the last audit: %w", err)
	}
	s, j, good, ok := readState(data)
	if !ok {
		// A file with other content is not overwritten.
		return nil, nil, 0, fmt.Errorf("read the state of the last audit: %s is not the state of an audit", name)
	}
	lost, j.name = len(data)-good, name
	if j.file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, nil, 0, fmt.Errorf("open the state of the audit: %w", err)
	}
	if err = j.file.Truncate(int64(good)); err == nil {
		_, err = j.file.Seek(int64(good), 0)
	}
	if err == nil && good == 0 {
		_, err = j.file.WriteString(journalHeader)
	}
	if err != nil {
		return nil, nil, 0, errors.Join(fmt.Errorf("open the state of the audit: %w", err), j.file.Close())
	}
	return s, j, lost, nil
}

// readState reads the content of a file, and returns the number of its valid bytes. ok is false if
// it is not a state.
func readState(data []byte) (s *state, j *journal, good int, ok bool) {
	s, j = newState(), &journal{}
	if n := min(len(data), len(journalHeader)); string(data[:n]) != journalHeader[:n] {
		return nil, nil, 0, false
	}
	if len(data) >= len(journalHeader) {
		good = len(journalHeader) + s.readFrames(data[len(journalHeader):], j)
	}
	return s, j, good, true
}

// readFrames reads frames up to the first that is incomplete or invalid, and returns their length
// in bytes.
func (s *state) readFrames(data []byte, j *journal) (good int) {
	text := string(data) // The strings of the state are parts of it.
	for len(text)-good >= frameBytes {
		head := data[good : good+frameBytes]
		n := int(binary.LittleEndian.Uint32(head))
		if n == 0 || n > maxFrame || n > len(text)-good-frameBytes {
			break
		}
		start := good + frameBytes
		if crc32.Checksum(data[start:start+n], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			break
		}
		f := frame{rest: text[start : start+n]}
		if !s.apply(&f, j) {
			break
		}
		j.frames++
		good = start + n
	}
	return good
}

// frame reads the values of a frame.
type frame struct {
	rest string
	bad  bool
}

func (f *frame) number() uint64 {
	var n uint64
	for i := 0; i < len(f.rest) && i < binary.MaxVarintLen64; i++ {
		n |= uint64(f.rest[i]&0x7f) << (7 * i)
		if f.rest[i] < 0x80 {
			f.rest = f.rest[i+1:]
			return n
		}
	}
	f.bad = true
	return 0
}

func (f *frame) text() string {
	n := f.number()
	if f.bad || n > uint64(len(f.rest)) {
		f.bad = true
		return ""
	}
	text := f.rest[:n]
	f.rest = f.rest[n:]
	return text
}

func (f *frame) sum() (sum [16]byte) {
	if f.bad || len(f.rest) < len(sum) {
		f.bad = true
		return sum
	}
	copy(sum[:], f.rest)
	f.rest = f.rest[len(sum):]
	return sum
}

// policies reads a set of policies that has n members.
func (f *frame) policies(s *state) *set {
	n := f.number()
	if f.bad || n > uint64(len(f.rest)) {
		f.bad = true
		return nil
	}
	var few [16]uint32
	ids := few[:0]
	for range n {
		ids = append(ids, f.policy(s))
	}
	if f.bad {
		return nil
	}
	return s.intern(ids)
}

func (f *frame) policy(s *state) uint32 {
	id := f.number()
	if id >= uint64(len(s.policies)) {
		f.bad = true
		return 0
	}
	return uint32(id)
}

// apply applies a frame to the state, and reports whether it could be read. A frame that cannot be
// read changes nothing.
func (s *state) apply(f *frame, j *journal) bool {
	kind := f.rest[0]
	f.rest = f.rest[1:]
	switch kind {
	case framePolicy:
		k := policyKey{f.text(), f.text()}
		if !f.bad {
			s.id(k)
		}
	case frameNamespace:
		name, sum := f.text(), f.sum()
		if !f.bad {
			s.namespaces[name] = sum
		}
	case frameResource:
		r := schema.GroupVersionResource{Group: f.text(), Version: f.text(), Resource: f.text()}
		if !f.bad {
			j.resource = r
		}
	case frameObject:
		key := objectKey{f.text(), f.text()}
		r := &record{version: f.text(), sum: f.sum()}
		r.passed, r.unmatched, r.volatile = f.policies(s), f.policies(s), f.policies(s)
		for n := f.number(); n > 0 && !f.bad; n-- {
			r.findings = append(r.findings, finding{
				policy: f.policy(s), outcome: outcomes[f.number()%uint64(len(outcomes))], again: f.number() != 0,
				code: int32(f.number()), message: f.text(), uid: f.text(), since: int64(f.number()),
			})
		}
		if !f.bad {
			s.resource(j.resource).put(key, r)
		}
	case frameGone:
		key := objectKey{f.text(), f.text()}
		if !f.bad {
			s.resource(j.resource).remove(key)
		}
	case framePosition:
		position, plan := f.text(), f.text()
		if !f.bad {
			k := s.resource(j.resource)
			k.position, k.plan = position, plan
		}
	default:
		return false
	}
	return !f.bad
}

// begin begins a frame. The caller appends to it, and end ends it.
func (j *journal) begin(kind byte) int {
	start := len(j.buffer)
	j.buffer = append(append(j.buffer, make([]byte, frameBytes)...), kind)
	return start
}

func (j *journal) end(start int) {
	body := j.buffer[start+frameBytes:]
	binary.LittleEndian.PutUint32(j.buffer[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(j.buffer[start+4:], crc32.Checksum(body, castagnoli))
	j.frames++
}

func (j *journal) number(n uint64) { j.buffer = binary.AppendUvarint(j.buffer, n) }

func (j *journal) texts(texts ...string) {
	for _, text := range texts {
		j.number(uint64(len(text)))
		j.buffer = append(j.buffer, text...)
	}
}

func (j *journal) set(s *set) {
	if s == nil {
		j.number(0)
		return
	}
	j.number(uint64(len(*s)))
	for _, id := range *s {
		j.number(uint64(id))
	}
}

func (j *journal) policy(k policyKey) {
	if j == nil {
		return
	}
	start := j.begin(framePolicy)
	j.texts(k.name, k.version)
	j.end(start)
}

func (j *journal) namespace(name string, sum [16]byte) {
	if j == nil {
		return
	}
	start := j.begin(frameNamespace)
	j.texts(name)
	j.buffer = append(j.buffer, sum[:]...)
	j.end(start)
}

// of makes a resource the subject of the next frames.
func (j *journal) of(r schema.GroupVersionResource) {
	if r == j.resource {
		return
	}
	j.resource = r
	start := j.begin(frameResource)
	j.texts(r.Group, r.Version, r.Resource)
	j.end(start)
}

func (j *journal) object(r schema.GroupVersionResource, key objectKey, o *record) {
	if j == nil {
		return
	}
	j.of(r)
	start := j.begin(frameObject)
	j.texts(key.namespace, key.name, o.version)
	j.buffer = append(j.buffer, o.sum[:]...)
	j.set(o.passed)
	j.set(o.unmatched)
	j.set(o.volatile)
	j.number(uint64(len(o.findings)))
	for _, f := range o.findings {
		j.number(uint64(f.policy))
		j.number(uint64(slices.Index(outcomes, f.outcome)))
		again := uint64(0)
		if f.again {
			again = 1
		}
		j.number(again)
		j.number(uint64(uint32(f.code)))
		j.texts(f.message, f.uid)
		j.number(uint64(f.since))
	}
	j.end(start)
}

func (j *journal) gone(r schema.GroupVersionResource, key objectKey) {
	if j == nil {
		return
	}
	j.of(r)
	start := j.begin(frameGone)
	j.texts(key.namespace, key.name)
	j.end(start)
}

func (j *journal) position(r schema.GroupVersionResource, k *known) {
	if j == nil {
		return
	}
	j.of(r)
	start := j.begin(framePosition)
	j.texts(k.position, k.plan)
	j.end(start)
}

// flush writes the frames to the file. It keeps the first error.
func (j *journal) flush() {
	if j == nil || len(j.buffer) == 0 {
		return
	}
	if j.err == nil {
		if _, err := j.file.Write(j.buffer); err != nil {
			j.err = fmt.Errorf("write the state of the audit: %w", err)
		}
	}
	j.buffer = j.buffer[:0]
}

// sync makes the written data survive a crash of the machine.
func (j *journal) sync() error {
	if j == nil {
		return nil
	}
	j.flush()
	if j.err == nil {
		if err := j.file.Sync(); err != nil {
			j.err = fmt.Errorf("write the state of the audit: %w", err)
		}
	}
	return j.err
}

// frames returns the number of frames that represent the state.
func (s *state) frames() int {
	n := len(s.policies) + len(s.namespaces)
	for _, k := range s.resources {
		n += len(k.objects) + 2
	}
	return n
}

// compact rewrites the file if most of it is obsolete.
func (j *journal) compact(s *state) error {
	if j == nil || j.frames < 2*s.frames()+1000 {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(j.name), ".kubewasm-audit-*")
	if err != nil {
		return fmt.Errorf("write the state of the audit: %w", err)
	}
	to := &journal{file: file, buffer: []byte(journalHeader)}
	s.write(to)
	err = to.sync()
	if err == nil {
		err = file.Chmod(0o600)
	}
	if err == nil {
		err = os.Rename(file.Name(), j.name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return errors.Join(fmt.Errorf("write the state of the audit: %w", err), file.Close())
	}
	old := j.file
	j.file, j.frames, j.resource = file, to.frames, to.resource
	return old.Close()
}

// write writes the whole state.
func (s *state) write(j *journal) {
	for _, k := range s.policies {
		j.policy(k)
	}
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		j.namespace(name, s.namespaces[name])
	}
	for r, k := range s.resources {
		for key, o := range k.objects {
			j.object(r, key, o)
			if len(j.buffer) > 1<<20 {
				j.flush()
			}
		}
		j.position(r, k)
	}
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return errors.Join(j.sync(), j.file.Close())
}
