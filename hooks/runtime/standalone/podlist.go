package standalone

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/quantities"
)

// podList reads lists of pods, one after the other. A pod whose text is unchanged since the
// previous list is not decoded again. Most pods of a node do not change from one list to the next,
// and decoding all pods of a full node takes ten times as long as finding their ends.
//
// The zero value is ready to use. Only one goroutine at a time may use a podList.
type podList struct {
	// known holds the pods of the last list by the hash of their text; nil for a pod that has
	// finished.
	known map[[sha256.Size]byte]*Pod
	// decoded is the number of pods that were decoded.
	decoded int
}

// read reads a PodList or a Pod in JSON, one pod at a time: the whole list of a full node takes
// some megabytes, and several times as many in Go. After an error, the pods of the last list are
// kept.
func (l *podList) read(r io.Reader) ([]Pod, error) {
	known := make(map[[sha256.Size]byte]*Pod, len(l.known))
	var kind string
	var one object // Used if the document is a Pod.
	pods := []Pod{}
	add := func(pod *Pod) {
		if pod != nil {
			pods = append(pods, *pod)
		}
	}
	v := &values{r: r}
	err := v.object(func(name string) error {
		switch name {
		case "kind":
			return v.decode(&kind)
		case "items":
			return v.array(func(text []byte) error {
				hash := sha256.Sum256(text)
				pod, ok := l.known[hash]
				if !ok {
					var o object
					if err := decode(text, &o); err != nil {
						return err
					}
					l.decoded++
					pod = o.running()
				}
				known[hash] = pod
				add(pod)
				return nil
			})
		case "metadata":
			return v.decode(&one.Metadata)
		case "spec":
			return v.decode(&one.Spec)
		case "status":
			return v.decode(&one.Status)
		}
		return v.decode(new(json.RawMessage))
	})
	switch {
	case err != nil:
		return nil, err
	case kind == "Pod":
		add(one.running())
	case kind != "PodList" && kind != "List":
		return nil, fmt.Errorf("kind is %q, want PodList or Pod", kind)
	}
	l.known = known
	return pods, nil
}

// running returns the pod, nil if it no longer has a cgroup.
func (o *object) running() *Pod {
	pod := o.pod()
	if finished(pod) {
		return nil
	}
	return new(podOf(pod, o.Status.Claims))
}

// decode decodes a value, with bounds on its quantities.
func decode(text []byte, to any) error {
	if err := quantities.Check(text, to); err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// values reads a document in JSON value by value. It finds only the end of a value, and leaves its
// grammar to the decoder of the value.
type values struct {
	r   io.Reader
	err error // Of r, io.EOF at its end.
	// buf[at:] holds the bytes that were read and not consumed yet.
	buf []byte
	at  int
}

// object calls f at the value of each field of an object, and f must consume it.
func (v *values) object(f func(name string) error) error {
	return v.each('{', '}', "an object", func() error {
		var name string
		if err := v.decode(&name); err != nil {
			return err
		}
		switch c, err := v.peek(); {
		case err != nil:
			return err
		case c != ':':
			return fmt.Errorf("found %q after the name %q, want a colon", c, cut.Text(name, 40))
		}
		v.at++
		return f(name)
	})
}

// array calls f with the text of each element of an array, which is valid during the call. null is
// an empty array.
func (v *values) array(f func(text []byte) error) error {
	if c, err := v.peek(); err == nil && c == 'n' {
		var null *struct{}
		return v.decode(&null)
	}
	return v.each('[', ']', "a list", func() error {
		text, err := v.next()
		if err != nil {
			return err
		}
		return f(text)
	})
}

// each calls f before each member between two brackets.
func (v *values) each(open, end byte, what string, f func() error) error {
	switch c, err := v.peek(); {
	case err != nil:
		return err
	case c != open:
		text, err := v.next()
		if err != nil {
			return err
		}
		return fmt.Errorf("found %s, want %s", cut.Text(text, 40), what)
	}
	v.at++
	for first := true; ; first = false {
		switch c, err := v.peek(); {
		case err != nil:
			return err
		case c == end:
			v.at++
			return nil
		case first:
		case c != ',':
			return fmt.Errorf("found %q, want a comma or the end of %s", c, what)
		default:
			v.at++
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// decode decodes the next value.
func (v *values) decode(to any) error {
	text, err := v.next()
	if err != nil {
		return err
	}
	return decode(text, to)
}

// peek returns the next byte that is not white space.
func (v *values) peek() (byte, error) {
	for {
		for ; v.at < len(v.buf); v.at++ {
			switch c := v.buf[v.at]; c {
			case ' ', '\t', '\r', '\n':
			default:
				return c, nil
			}
		}
		if err := v.fill(); err != nil {
			return 0, err
		}
	}
}

// next returns the text of the next value, which is valid until more is read. It returns an error
// for a value without an end, but does not notice invalid JSON.
func (v *values) next() ([]byte, error) {
	if _, err := v.peek(); err != nil {
		return nil, err
	}
	depth, quoted := 0, false
	for i := 0; ; i++ { // Relative to v.at, which fill moves.
		if v.at+i == len(v.buf) {
			switch err := v.fill(); {
			case err == nil:
			case i > 0 && depth == 0 && !quoted && errors.Is(err, io.ErrUnexpectedEOF):
				return v.take(i), nil // A number or a word ends with the document.
			default:
				return nil, err
			}
		}
		rest := v.buf[v.at+i:]
		if quoted {
			n := bytes.IndexByte(rest, '"')
			escape := rest
			if n >= 0 {
				escape = rest[:n]
			}
			if b := bytes.IndexByte(escape, '\\'); b >= 0 {
				// It skips the next byte, which may not have been read yet.
				if i += b + 1; v.at+i == len(v.buf) {
					if err := v.fill(); err != nil {
						return nil, err
					}
				}
				continue
			}
			if n < 0 {
				i += len(rest) - 1
				continue
			}
			i, quoted = i+n, false
			if depth == 0 {
				return v.take(i + 1), nil
			}
			continue
		}
		n := 0
		for n < len(rest) && !structural[rest[n]] {
			n++
		}
		if n == len(rest) {
			i += n - 1
			continue
		}
		i += n
		switch rest[n] {
		case '"':
			quoted = true
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return v.take(i + 1), nil
			}
		}
		if depth < 0 || depth == 0 && !quoted { // The end of a number or a word.
			return v.take(i), nil
		}
	}
}

// structural are the bytes at which a value may begin, end or nest.
var structural = func() (is [256]bool) {
	for _, c := range []byte("\"{}[],: \t\r\n") {
		is[c] = true
	}
	return is
}()

func (v *values) take(n int) []byte {
	text := v.buf[v.at : v.at+n]
	v.at += n
	return text
}

// leastRead is the minimum room for a read, in bytes.
const leastRead = 32 << 10

// fill reads more, and drops consumed bytes.
func (v *values) fill() error {
	if v.err != nil {
		if errors.Is(v.err, io.EOF) {
			return io.ErrUnexpectedEOF // A document never ends where more is needed.
		}
		return v.err
	}
	if v.at != 0 {
		v.buf, v.at = v.buf[:copy(v.buf, v.buf[v.at:])], 0
	}
	had := len(v.buf)
	if cap(v.buf)-had < leastRead {
		v.buf = append(make([]byte, 0, max(2*cap(v.buf), had+leastRead)), v.buf...)
	}
	var n int
	for n == 0 && v.err == nil {
		n, v.err = v.r.Read(v.buf[had:cap(v.buf)])
	}
	v.buf = v.buf[:had+n]
	if n == 0 {
		return v.fill()
	}
	return nil
}
