package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Call is a call of a guest, with everything that crossed the boundary in it, in order.
type Call struct {
	// Version is the version of the plugin that was called.
	Version *Version
	// Sequence names the sequence of calls of one instance since it began or was reset, and
	// Number is the call's place in it, from 0.
	Sequence, Number uint64
	// Kind is the kind of the call.
	Kind CallKind
	// Function is the name of the export, or of a call of several.
	Function string
	// Args are the arguments of the export.
	Args []uint64
	// Events are the events of guest and host in the call, in order.
	Events []Event
	// Result is the result of the export.
	Result uint64
	// Output is the output that the guest printed, up to Limits.OutputBytes.
	Output []byte
	// End is the kind of end of the call, and Trap the reason, if the guest did not return.
	End  End
	Trap string
	// Fuel is the fuel that the call used.
	Fuel int64
	// Start and Duration are the time at which the call began and the time that it took.
	Start    time.Time
	Duration time.Duration
	// Marks are the limitations of the recording of the call.
	Marks Marks
}

// CallKind is a kind of call of a guest.
type CallKind byte

const (
	// ByFunction is a call of a function of package abi.
	ByFunction CallKind = iota
	// ByExport is a call of an export of an adapter or a dialect.
	ByExport
	// BySteps is a call in which the host calls exports and moves bytes in turn, as listed by the
	// events.
	BySteps
	// AsProgram is the run of a program with the arguments and the input in the first two
	// events.
	AsProgram
	// ByStart is a call that starts an instance: a start function, the marker, configure.
	ByStart
)

// End is a kind of end of a call.
type End byte

const (
	// Returned means that the guest returned.
	Returned End = iota
	// Trapped means that the guest trapped, broke a rule or used up its fuel.
	Trapped
	// Stopped means that the time of the call or of its caller ended.
	Stopped
)

// Marks are limitations of the recording of a call.
type Marks byte

const (
	// Secret means that confidential data crossed in the sequence, up to this call or in it, see
	// package confidential. It is masked, and so is everything that may repeat it.
	Secret Marks = 1 << iota
	// Redacted means that the operator's redaction changed the call, or an earlier one of the
	// sequence.
	Redacted
	// Refused means that the memory of the guest could not grow, in the sequence up to this call,
	// since the process had no more.
	Refused
)

// Event is something that guest or host did in a call.
type Event struct {
	Kind EventKind
	// Index is that of an import in Version.Imports, or of an export in Version.Exports.
	Index int
	// Args are the numbers of the event, depending on its kind.
	Args []uint64
	// Data are the bytes that moved.
	Data []byte
}

// EventKind is the kind of an event.
type EventKind byte

const (
	// Host is a call of the host function with the index; Args are its parameters.
	Host EventKind = 1 + iota
	// HostReturned is its end; Args is its result, if it has one. A host function that ends
	// the call has none.
	HostReturned
	// Read is a read of Data from the guest's memory by a host function. Args are the pointer and
	// the length.
	Read
	// Write is the answer Data of a host function by the buffer-limit rule. Args are the buffer,
	// the limit, and the length of the answer. Data is empty if the answer did not fit.
	Write
	// Put is a write of Data to the guest's memory by the host. Args is the pointer.
	Put
	// Text is a read of a text by the host, at the pointer in Args, up to a NUL.
	Text
	// Charge is the guest's payment of fuel for Args[0] bytes, Spend that of Args[0] units.
	Charge
	Spend
	// Input is Data appended to the standard input of a program.
	Input
	// Output is Data that a program wrote to its standard output.
	Output
	// Argument is an argument of a program.
	Argument
	// Invoke is a call by the host, within the call, of the export with the index; Args are the
	// arguments. Invoked is its end; Args is the result.
	Invoke
	Invoked
	// Abort is the end of the call by a host function; Data is the text of the error.
	Abort
	// Value is a number that the guest got from outside, a time for example: Args[0].
	Value
	// Random are random numbers that the guest got.
	Random
	// Confidential describes the bytes that the host function hands over. Args are a
	// confidential.Shape, the part of such a message or 0, and 1 if they are a list of such
	// messages.
	Confidential

	endOfCall
)

// FromGuest reports whether the event's Data are the guest's.
func (e *Event) FromGuest() bool {
	return e.Kind == Read || e.Kind == Text || e.Kind == Output
}

// ToGuest reports whether the event's Data are handed to the guest.
func (e *Event) ToGuest() bool {
	switch e.Kind {
	case Write, Put, Input, Argument, Random:
		return true
	}
	return false
}

// Import is a function that a module imports, by its index in Version.Imports.
type Import struct {
	Module  string          `json:"module"`
	Name    string          `json:"name"`
	Params  []abi.ValueType `json:"params,omitempty"`
	Results []abi.ValueType `json:"results,omitempty"`
	// Memory has bit n set if parameter n is an address or a length in the guest's memory.
	Memory uint16 `json:"memory,omitempty"`
}

func (im *Import) String() string { return im.Module + "." + im.Name }

// Export is a function that the host calls by its index.
type Export struct {
	Name     string          `json:"name"`
	Params   []abi.ValueType `json:"params,omitempty"`
	Results  []abi.ValueType `json:"results,omitempty"`
	Optional bool            `json:"optional,omitempty"`
}

// Version is a version of a plugin: a module, its configuration, and the host that ran it.
type Version struct {
	// Run is a random name of the process, or of its part, that recorded.
	Run    string `json:"run"`
	Plugin string `json:"plugin"`
	// SHA256 is the digest of the module, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Kind is that of the adapter.
	Kind abi.Kind `json:"kind"`
	// Config is the configuration that the guest reads.
	Config []byte   `json:"config,omitempty"`
	Args   []string `json:"args,omitempty"`
	Grants []string `json:"grants,omitempty"`
	// Limits are those of package host, in JSON, with their defaults.
	Limits []byte `json:"limits,omitempty"`
	// Reset is the policy for resetting instances.
	Reset string `json:"reset,omitempty"`
	// Dialect is the name of the ABI of the guest, empty for that of package abi. The rest
	// describes it.
	Dialect      string   `json:"dialect,omitempty"`
	Start        []string `json:"start,omitempty"`
	Command      bool     `json:"command,omitempty"`
	DefineMemory bool     `json:"defineMemory,omitempty"`
	Imports      []Import `json:"imports,omitempty"`
	Exports      []Export `json:"exports,omitempty"`
	// Confidential is the rule by which the recording masks confidential data.
	Confidential *confidential.Rule `json:"confidential,omitempty"`
	// Engine is the version of the rewriting that counts fuel, and GoPass whether it
	// optimised the code of Go's compiler.
	Engine int  `json:"engine"`
	GoPass bool `json:"goPass,omitempty"`
	// Arch is the architecture of the host, as in GOARCH.
	Arch string `json:"arch"`
	// ABI is the version of the contract.
	ABI int `json:"abi"`

	id uint64
}

// A call may have so many bytes, and so many events: a guest that calls the host in an endless loop
// has more. They, and the size of the data present, bound the memory that a reader allocates for a
// call.
const (
	maxCallBytes = 64 << 20
	maxEvents    = 1 << 20
)

// ErrMalformed is wrapped by the errors of recorded calls that cannot be read.
var ErrMalformed = errors.New("malformed call")

// decoder reads numbers and bytes. After the first mistake it reads zeros.
type decoder struct {
	b    []byte
	bad  bool
	blob func(id uint64, length int) ([]byte, bool)
	// counting is set in the first pass over a call, which counts numbers, and total is the
	// bytes of data so far. room is for the numbers in the second one.
	counting bool
	count    int
	total    uint64
	room     []uint64
}

func (d *decoder) fail() {
	d.bad, d.b = true, nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// numbers reads numbers into room that numbers, which was counted before.
func (d *decoder) numbers() []uint64 {
	n := int(d.byte())
	if n == 0 || d.bad {
		return nil
	}
	if d.counting {
		d.count += n
		for range n {
			d.uvarint()
		}
		return nil
	}
	first := len(d.room)
	for range n {
		d.room = append(d.room, d.uvarint())
	}
	return d.room[first:len(d.room):len(d.room)]
}

// data reads bytes, which are lent from d.b or from a blob.
func (d *decoder) data() []byte {
	v := d.uvarint()
	length := v >> 1
	if d.total += min(length, maxCallBytes+1); d.total > maxCallBytes {
		d.fail() // Bytes that are stored once may be used any number of times.
		return nil
	}
	if v&1 != 0 {
		if d.blob == nil || length > math.MaxInt32 {
			d.fail()
			return nil
		}
		b, ok := d.blob(d.uvarint(), int(length))
		if !ok || uint64(len(b)) != length {
			d.fail()
			return nil
		}
		return b
	}
	if length > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:length:length]
	d.b = d.b[length:]
	if length == 0 {
		return nil
	}
	return b
}

// decodeCall reads the body of a call. Bytes are lent from b, or from blobs. Everything is counted
// before anything is allocated.
func decodeCall(b []byte, blob func(id uint64, length int) ([]byte, bool)) (*Call, error) {
	events := 0
	counted := &decoder{b: b, blob: blob, counting: true}
	if err := counted.call(&Call{}, func(*Event) error {
		if events++; events > maxEvents {
			return fmt.Errorf("%w: it has more than %d events", ErrMalformed, maxEvents)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	c := &Call{}
	if events != 0 {
		c.Events = make([]Event, 0, events)
	}
	d := &decoder{b: b, blob: blob, room: make([]uint64, 0, counted.count)}
	err := d.call(c, func(e *Event) error {
		c.Events = append(c.Events, *e)
		return nil
	})
	return c, err
}

// call reads a call, and gives its events to add.
func (d *decoder) call(c *Call, add func(e *Event) error) error {
	c.Kind = CallKind(d.byte())
	function := d.data()
	c.Args, c.Start = d.numbers(), time.Unix(0, d.varint())
	var e Event
	for !d.bad {
		e = Event{Kind: EventKind(d.byte())}
		if e.Kind == endOfCall {
			c.End, c.Result, c.Fuel, c.Duration = End(d.byte()), d.uvarint(), d.varint(), time.Duration(d.varint())
			if trap := d.data(); !d.counting {
				c.Trap = string(trap)
			}
			c.Output = d.data()
			break
		}
		if e.Kind == 0 || e.Kind > endOfCall {
			return fmt.Errorf("%w: no event has the kind %d", ErrMalformed, e.Kind)
		}
		switch e.Kind {
		case Host, Invoke:
			index := d.uvarint()
			if index > maxIndex {
				return fmt.Errorf("%w: index %d", ErrMalformed, index)
			}
			e.Index, e.Args = int(index), d.numbers()
		case HostReturned, Invoked, Charge, Spend, Value, Confidential:
			e.Args = d.numbers()
		case Read, Write, Put, Text:
			e.Args, e.Data = d.numbers(), d.data()
		case Input, Output, Argument, Abort, Random:
			e.Data = d.data()
		}
		if err := add(&e); err != nil {
			return err
		}
	}
	if d.bad {
		return fmt.Errorf("%w: it ends early", ErrMalformed)
	}
	if c.Kind > ByStart || c.End > Stopped {
		return fmt.Errorf("%w: kind %d, end %d", ErrMalformed, c.Kind, c.End)
	}
	if !d.counting {
		c.Function = string(function)
	}
	return nil
}

// maxIndex is more than the imports and exports that a module may have.
const maxIndex = 1 << 20

func appendNumbers(b []byte, list []uint64) []byte {
	b = append(b, byte(len(list)))
	for _, v := range list {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendData[T string | []byte](b []byte, data T) []byte {
	b = binary.AppendUvarint(b, uint64(len(data))<<1)
	return append(b, data...)
}

// appendCall appends the body of a call. data appends bytes or a reference to them.
func appendCall(b []byte, c *Call, data func(b, data []byte) []byte) []byte {
	b = append(b, byte(c.Kind))
	b = appendNumbers(appendData(b, c.Function), c.Args)
	b = binary.AppendVarint(b, c.Start.UnixNano())
	for i := range c.Events {
		e := &c.Events[i]
		b = append(b, byte(e.Kind))
		switch e.Kind {
		case Host, Invoke:
			b = appendNumbers(binary.AppendUvarint(b, uint64(e.Index)), e.Args)
		case HostReturned, Invoked, Charge, Spend, Value, Confidential:
			b = appendNumbers(b, e.Args)
		case Read, Write, Put, Text:
			b = data(appendNumbers(b, e.Args), e.Data)
		case Input, Output, Argument, Abort, Random:
			b = data(b, e.Data)
		}
	}
	b = append(b, byte(endOfCall), byte(c.End))
	b = binary.AppendUvarint(b, c.Result)
	b = binary.AppendVarint(b, c.Fuel)
	b = binary.AppendVarint(b, int64(c.Duration))
	return data(appendData(b, c.Trap), c.Output)
}
