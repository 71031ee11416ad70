package profile

import (
	"compress/gzip"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// Write writes the profile in the format of pprof (profile.proto), compressed. The sample types
// are fuel in units and memory in bytes.
func (p *Profile) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	if _, err := z.Write(p.encode()); err != nil {
		return err
	}
	return z.Close()
}

// The fields of profile.proto.
const (
	profileSampleType    = 1
	profileSample        = 2
	profileLocation      = 4
	profileFunction      = 5
	profileString        = 6
	profileTime          = 9
	profileDuration      = 10
	profileComment       = 13
	profileDefaultSample = 14

	valueType, valueUnit = 1, 2

	sampleLocation, sampleValue = 1, 2

	locationID, locationLine = 1, 4
	lineFunction, lineLine   = 1, 2

	functionID, functionName, functionSystemName, functionFile, functionStart = 1, 2, 3, 4, 5
)

// encode returns the message Profile. Each function is one location.
func (p *Profile) encode() (b []byte) {
	e := encoder{strings: map[string]int64{"": 0}, list: []string{""}, ids: map[*Function]uint64{}}
	for _, t := range [][2]string{{"memory", "bytes"}, {"fuel", "count"}} {
		var start int
		b, start = wire.BeginMessage(b, profileSampleType)
		b = wire.AppendNumber(b, valueType, e.text(t[0]))
		b = wire.EndMessage(wire.AppendNumber(b, valueUnit, e.text(t[1])), start)
	}
	for i := range p.Samples {
		b = e.sample(b, &p.Samples[i])
	}
	for i, f := range e.functions {
		b = e.function(b, uint64(i+1), f)
	}
	comments := []int64{}
	for _, text := range []string{"plugin " + p.Plugin, "sha256 " + p.Digest} {
		comments = append(comments, e.text(text))
	}
	fuel := e.text("fuel")
	for _, s := range e.list {
		b = wire.AppendItem(b, profileString, s)
	}
	if !p.Start.IsZero() {
		b = wire.AppendNumber(b, profileTime, p.Start.UnixNano())
	}
	b = wire.AppendNumber(b, profileDuration, p.Duration.Nanoseconds())
	for _, c := range comments {
		b = wire.AppendNumber(b, profileComment, c)
	}
	return wire.AppendNumber(b, profileDefaultSample, fuel)
}

// encoder numbers strings and functions.
type encoder struct {
	strings   map[string]int64
	list      []string
	functions []*Function
	ids       map[*Function]uint64
}

func (e *encoder) text(s string) int64 {
	n, ok := e.strings[s]
	if !ok {
		n = int64(len(e.list))
		e.strings[s], e.list = n, append(e.list, s)
	}
	return n
}

func (e *encoder) sample(b []byte, s *Sample) []byte {
	b, start := wire.BeginMessage(b, profileSample)
	b, packed := wire.BeginMessage(b, sampleLocation)
	for _, f := range s.Stack {
		id := e.ids[f]
		if id == 0 {
			e.functions = append(e.functions, f)
			id = uint64(len(e.functions))
			e.ids[f] = id
		}
		b = wire.AppendVarint(b, id)
	}
	b = wire.EndMessage(b, packed)
	b, packed = wire.BeginMessage(b, sampleValue)
	b = wire.AppendVarint(wire.AppendVarint(b, uint64(s.Bytes)), uint64(s.Fuel))
	return wire.EndMessage(wire.EndMessage(b, packed), start)
}

func (e *encoder) function(b []byte, id uint64, f *Function) []byte {
	number := func(field protowire.Number, v int64) { b = wire.AppendNumber(b, field, v) }
	b, function := wire.BeginMessage(b, profileFunction)
	number(functionID, int64(id))
	number(functionName, e.text(f.Name))
	number(functionSystemName, e.text(f.Name))
	number(functionFile, e.text(f.File))
	number(functionStart, int64(f.Line))
	b = wire.EndMessage(b, function)
	b, location := wire.BeginMessage(b, profileLocation)
	number(locationID, int64(id))
	b, line := wire.BeginMessage(b, locationLine)
	number(lineFunction, int64(id))
	number(lineLine, int64(f.Line))
	return wire.EndMessage(wire.EndMessage(b, line), location)
}
