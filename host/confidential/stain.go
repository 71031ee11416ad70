package confidential

import (
	"encoding/binary"
	stdjson "encoding/json"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Withheld replaces a text that a call has sealed.
const Withheld = "(withheld: confidential data)"

// Stain holds the confidential values that a call, or the calls of one instance, have seen. The
// zero value holds none. It is not safe for use by several goroutines.
type Stain struct {
	sealed bool
	pieces map[uint64]struct{}
	// filter has a bit set for each piece, so that most windows of a text need no look-up.
	filter []uint64
	// short are whole values of less than pieceBytes bytes.
	short []string
}

const (
	// pieceBytes is the length of the pieces by which a repeated value is found.
	pieceBytes = 8
	// minValue is the length of the shortest value that is searched for. Texts are full of shorter
	// ones.
	minValue = 4
	// maxPieces bounds the memory of a stain to some megabytes. Further pieces seal the call.
	maxPieces = 1 << 16
	maxShort  = 256
	// heavyPieces is the number of pieces from which an instance should be reset to forget them.
	heavyPieces = 1 << 13
	filterBits  = 1 << 16
)

// Seal records that a sealed value was seen.
func (s *Stain) Seal() { s.sealed = true }

// Join records what another stain has, which stays as it is.
func (s *Stain) Join(o *Stain) {
	if s.sealed = s.sealed || o.sealed; s.sealed {
		return
	}
	for _, value := range o.short {
		s.add(value)
	}
	for piece := range o.pieces {
		s.add(string(binary.LittleEndian.AppendUint64(nil, piece)))
	}
}

// Sealed reports whether all output of the guest must not outlive its call.
func (s *Stain) Sealed() bool { return s.sealed }

// Clean reports whether no confidential value was seen.
func (s *Stain) Clean() bool { return !s.sealed && len(s.pieces) == 0 && len(s.short) == 0 }

// Heavy reports whether the stain is so large that the instance should be reset.
func (s *Stain) Heavy() bool {
	return s.sealed || len(s.pieces) > heavyPieces || len(s.short) > maxShort/2
}

// add records a value that is masked wherever it is repeated.
func (s *Stain) add(value string) {
	switch n := len(value); {
	case s.sealed || n < minValue:
		return
	case n < pieceBytes:
		for _, known := range s.short {
			if known == value {
				return
			}
		}
		if len(s.short) >= maxShort {
			s.Seal()
			return
		}
		s.short = append(s.short, value)
		return
	}
	if s.pieces == nil {
		s.pieces, s.filter = map[uint64]struct{}{}, make([]uint64, filterBits/64)
	}
	for i := 0; i+pieceBytes <= len(value); i++ {
		if len(s.pieces) >= maxPieces {
			s.Seal()
			return
		}
		piece := load(value, i)
		s.pieces[piece] = struct{}{}
		bit := hash(piece)
		s.filter[bit/64] |= 1 << (bit % 64)
	}
}

// AddText records a text that is masked wherever it is repeated, even in quotes: messages and
// patches have escapes in it then, and few of its pieces are left.
func (s *Stain) AddText(text string) {
	s.add(text)
	if strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("\"\\<>&", r) }) < 0 {
		return
	}
	marshaled, _ := stdjson.Marshal(text) // It has no error for a text.
	for _, quoted := range []string{strconv.Quote(text), strconv.QuoteToASCII(text), string(json.AppendString(nil, text)), string(marshaled)} {
		if inner := quoted[1 : len(quoted)-1]; inner != text {
			s.add(inner)
		}
	}
}

func load[T string | []byte](b T, i int) uint64 {
	var w [pieceBytes]byte
	copy(w[:], b[i:i+pieceBytes])
	return binary.LittleEndian.Uint64(w[:])
}

func hash(piece uint64) uint64 { return piece * 0x9e3779b97f4a7c15 >> 48 }

// Mask masks data that the guest may repeat: all of it after a seal, otherwise the values that were
// added. It reports whether it has changed anything.
func (s *Stain) Mask(data []byte) (changed bool) {
	if s.sealed {
		overwrite(data)
		return len(data) != 0
	}
	spans := s.spans(data, 0)
	for _, span := range spans { // Only now: a value may begin within another one.
		overwrite(data[span[0]:span[1]])
	}
	return len(spans) != 0
}

// spans returns the parts of data that repeat a value, even in base64 or in hexadecimal. depth is
// the number of times that data were decoded.
func (s *Stain) spans(data []byte, depth int) (spans [][2]int) {
	if s.pieces != nil {
		for i := 0; i+pieceBytes <= len(data); i++ {
			piece := binary.LittleEndian.Uint64(data[i:])
			bit := hash(piece)
			if s.filter[bit/64]>>(bit%64)&1 == 0 {
				continue
			}
			if _, ok := s.pieces[piece]; !ok {
				continue
			}
			if n := len(spans); n != 0 && spans[n-1][1] >= i {
				spans[n-1][1] = i + pieceBytes
			} else {
				spans = append(spans, [2]int{i, i + pieceBytes})
			}
		}
	}
	for _, value := range s.short {
		text := string(data)
		for from := 0; ; {
			i := strings.Index(text[from:], value)
			if i < 0 {
				break
			}
			spans = append(spans, [2]int{from + i, from + i + len(value)})
			from += i + 1
		}
	}
	if depth == maxEncoded || s.Clean() {
		return spans
	}
	least := pieceBytes
	if len(s.short) != 0 {
		least = minValue
	}
	for i := range encodings {
		spans = s.encoded(spans, data, &encodings[i], (least*8+encodings[i].bits-1)/encodings[i].bits, depth)
	}
	return spans
}

// encoded appends the parts of data that repeat a value in an encoding, in runs of at least so many
// of its letters. A run may begin before the value does: it is decoded from each place of a letter.
func (s *Stain) encoded(spans [][2]int, data []byte, e *encoding, least, depth int) [][2]int {
	var decoded []byte
	for start := 0; start < len(data); start++ {
		end := start
		for end < len(data) && e.values[data[end]] >= 0 {
			end++
		}
		if end-start < least {
			start = end
			continue
		}
		for from := start; from < start+e.phases; from++ {
			decoded = decoded[:0]
			have, bits := uint32(0), 0
			for _, c := range data[from:end] {
				have, bits = have<<e.bits|uint32(e.values[c]), bits+e.bits
				if bits >= 8 {
					bits -= 8
					decoded = append(decoded, byte(have>>bits))
				}
			}
			for _, span := range s.spans(decoded, depth+1) {
				spans = append(spans, [2]int{from + span[0]*8/e.bits, from + (span[1]*8+e.bits-1)/e.bits})
			}
		}
		start = end
	}
	return spans
}

// maxEncoded is the maximum number of nested encodings in which a value is found: Secrets hold
// texts in base64.
const maxEncoded = 2

// encoding is a way to write bytes in letters.
type encoding struct {
	// bits is the number of bits of a letter, and phases the number of letters until a byte begins
	// with a letter again.
	bits, phases int
	// values are the bits of the letters, -1 for others.
	values [256]int8
}

// encodings are base64, with both alphabets, and hexadecimal.
var encodings = func() [2]encoding {
	list := [2]encoding{{bits: 6, phases: 4}, {bits: 4, phases: 2}}
	for n, alphabets := range [...][]string{
		{"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"},
		{"0123456789abcdef", "0123456789ABCDEF"},
	} {
		for c := range list[n].values {
			list[n].values[c] = -1
		}
		for _, alphabet := range alphabets {
			for value, c := range []byte(alphabet) {
				list[n].values[c] = int8(value)
			}
		}
	}
	return list
}()

// HasNumber reports whether a number may repeat confidential data. After a seal any number may;
// otherwise a number that is a value in decimal digits, or eight bytes of one.
func (s *Stain) HasNumber(v uint64) bool {
	if s.sealed {
		return true
	}
	if s.Clean() {
		return false
	}
	texts := [][]byte{
		binary.LittleEndian.AppendUint64(nil, v), binary.BigEndian.AppendUint64(nil, v),
		strconv.AppendUint(nil, v, 10), strconv.AppendInt(nil, int64(v), 10), strconv.AppendInt(nil, int64(int32(v)), 10),
		strconv.AppendFloat(nil, math.Float64frombits(v), 'f', -1, 64),
	}
	if v <= math.MaxUint32 {
		texts = append(texts, strconv.AppendFloat(nil, float64(math.Float32frombits(uint32(v))), 'f', -1, 32))
	}
	for _, text := range texts {
		if s.Mask(text) {
			return true
		}
	}
	return false
}

// MaskAnswer masks data that a host function hands to the guest, since it may repeat the guest's
// data. After a seal a single string, number or word of JSON stays one, so that the guest goes on
// as far as it can; everything else is masked as a whole.
func (s *Stain) MaskAnswer(data []byte) (changed bool) {
	if !s.sealed {
		return s.Mask(data)
	}
	switch text := strings.TrimSpace(string(data)); {
	case text == "true" || text == "false" || text == "null" || text == "":
		return false
	case isNumber(data):
		maskDigits(data)
	case isString(data):
		maskText(data)
	default:
		overwrite(data)
	}
	return true
}

// MaskFields is [Stain.MaskAnswer] for a message that the host has made. After a seal the values of
// its fields are masked, and their numbers and lengths stay, so that the guest goes on.
func (s *Stain) MaskFields(message []byte) (changed bool) {
	if !s.sealed || !fields(message, func(protowire.Number, []byte) {}) {
		return s.MaskAnswer(message)
	}
	for rest := message; len(rest) > 0; {
		_, kind, size := protowire.ConsumeTag(rest)
		rest = rest[size:]
		switch kind {
		case protowire.BytesType:
			value, n := protowire.ConsumeBytes(rest)
			overwrite(rest[n-len(value) : n])
			size = n
		case protowire.VarintType:
			_, size = protowire.ConsumeVarint(rest)
			for i := range size {
				rest[i] &= 0x80 // It stays as long.
			}
		case protowire.Fixed32Type:
			size = 4
			clear(rest[:size])
		case protowire.Fixed64Type:
			size = 8
			clear(rest[:size])
		default: // A group, of which the host makes none.
			overwrite(rest)
			return true
		}
		rest = rest[size:]
	}
	return len(message) != 0
}

// Text returns a text of the guest in a form that may outlive the call.
func (s *Stain) Text(text string) string {
	switch {
	case text == "":
		return ""
	case s.sealed:
		return Withheld
	case s.Clean():
		return text
	}
	b := []byte(text)
	if !s.Mask(b) {
		return text
	}
	return strings.ToValidUTF8(string(b), "x")
}

// overwrite overwrites data with the letter x.
func overwrite(data []byte) {
	for i := range data {
		data[i] = 'x'
	}
}
