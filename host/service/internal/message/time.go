package message

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/wire"
)

var (
	errTime     = errors.New("it is not a time from year 1 to 9999")
	errDuration = errors.New("it is not a duration of less than 292 years")
)

// The seconds of google.protobuf.Timestamp: those of the years 1 to 9999.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

// time appends a google.protobuf.Timestamp.
func (e *encoder) time(b []byte, f *field, tag uint64, t time.Time) []byte {
	seconds := t.Unix()
	if seconds < firstSecond || seconds > lastSecond {
		e.fail(f, errTime)
	}
	return appendPair(b, tag, seconds, int64(t.Nanosecond()))
}

// appendPair appends a message whose fields 1 and 2 are numbers, of which 0 is left out.
func appendPair(b []byte, tag uint64, first, second int64) []byte {
	b = append(appendTag(b, tag), 0)
	start := len(b)
	return wire.EndMessage(wire.AppendNumber(wire.AppendNumber(b, 1, first), 2, second), start)
}

// pair adds the fields 1 and 2 of a message to first and second: of several the last counts.
func pair(raw []byte, first int64, second int32) (int64, int32, error) {
	c := wire.NewCursor(raw)
	for c.Next() {
		switch {
		case c.Number > 2:
		case c.Type() != protowire.VarintType:
			return 0, 0, fmt.Errorf("field %d: %w", c.Number, wireError(c.Type()))
		case c.Number == 1:
			first = int64(c.Value())
		default:
			second = int32(c.Value())
		}
	}
	return first, second, c.Err()
}

// parseTime reads a google.protobuf.Timestamp.
func parseTime(raw []byte, t *metav1.Time) error {
	var seconds int64
	var nanos int32
	if !t.IsZero() { // Fields of the same message came before.
		seconds, nanos = t.Unix(), int32(t.Nanosecond())
	}
	seconds, nanos, err := pair(raw, seconds, nanos)
	if err != nil {
		return err
	}
	if seconds < firstSecond || seconds > lastSecond || nanos < 0 || nanos >= 1e9 {
		return errTime
	}
	t.Time = time.Unix(seconds, int64(nanos)).UTC()
	return nil
}

// parseDuration reads a google.protobuf.Duration.
func parseDuration(raw []byte, d *metav1.Duration) error {
	seconds, nanos, err := pair(raw, int64(d.Duration/time.Second), int32(d.Duration%time.Second))
	if err != nil {
		return err
	}
	const most = math.MaxInt64/int64(time.Second) - 1
	if seconds < -most || seconds > most || nanos <= -1e9 || nanos >= 1e9 || seconds < 0 && nanos > 0 || seconds > 0 && nanos < 0 {
		return errDuration
	}
	d.Duration = time.Duration(seconds)*time.Second + time.Duration(nanos)
	return nil
}
