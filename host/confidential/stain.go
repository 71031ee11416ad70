package confidential

import (
	"encoding/binary"
	stdjson "encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Withheld replaces a text that a call has sealed.
const Withheld = "(withheld: it is about confidential data)"

// Stain holds the confidential values that a call, or the calls of one instance, have seen. The
// zero value holds none. It is not safe for use by several goroutines.
type Stain struct {
	sealed bool
	pieces map[uint64]struct{}
	// filter has a bit set for each piece, so that most windows of a text need no look at the map.
	filter []uint64
	// short are whole values of less than pieceBytes bytes.
	short []string
}

const (
	// pieceBytes is the length of the pieces of a value that are found again.
	pieceBytes = 8
	// minValue is the shortest value that is found again. Texts are full of shorter ones.
	minValue = 4
	// maxPieces bounds the memory of a stain to some megabytes. More seal.
	maxPieces = 1 << 16
	maxShort  = 256
	// heavyPieces is when an instance should forget what it has seen.
	heavyPieces = 1 << 13
	filterBits  = 1 << 16
)

// Seal notes that a sealed value was seen.
func (s *Stain) Seal() { s.sealed = true }

// Sealed reports whether nothing that the guest says may outlive its call.
func (s *Stain) Sealed() bool { return s.sealed }

// Clean reports whether nothing confidential was seen.
func (s *Stain) Clean() bool { return !s.sealed && len(s.pieces) == 0 && len(s.short) == 0 }

// Heavy reports whether so much was seen that the instance should begin anew.
func (s *Stain) Heavy() bool {
	return s.sealed || len(s.pieces) > heavyPieces || len(s.short) > maxShort/2
}

// Add notes a value that is masked wherever it is repeated.
func (s *Stain) Add(value string) {
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

// AddText notes a text that is masked wherever it is repeated, also in quotes: messages and patches
// have escapes in it then, and few of its pieces are left.
func (s *Stain) AddText(text string) {
	s.Add(text)
	if strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("\"\\<>&", r) }) < 0 {
		return
	}
	marshaled, _ := stdjson.Marshal(text) // It has no error for a text.
	for _, quoted := range []string{strconv.Quote(text), strconv.QuoteToASCII(text), string(json.AppendString(nil, text)), string(marshaled)} {
		if inner := quoted[1 : len(quoted)-1]; inner != text {
			s.Add(inner)
		}
	}
}

func load[T string | []byte](b T, i int) uint64 {
	var w [pieceBytes]byte
	copy(w[:], b[i:i+pieceBytes])
	return binary.LittleEndian.Uint64(w[:])
}

func hash(piece uint64) uint64 { return piece * 0x9e3779b97f4a7c15 >> 48 }

// Mask masks in data what the guest may repeat: all of it after a seal, else the values that were
// added. It reports whether it has changed anything.
func (s *Stain) Mask(data []byte) (changed bool) {
	if s.sealed {
		Mask(data)
		return len(data) != 0
	}
	var spans [][2]int
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
	for _, span := range spans { // Only now: a value may begin within another one.
		Mask(data[span[0]:span[1]])
	}
	return len(spans) != 0
}

// HasNumber reports whether a number may repeat something confidential: any may after a seal. Else
// those do that are a value in decimal digits, or eight bytes of one.
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

// MaskAnswer masks what a host function hands to the guest, which may repeat what the guest has
// said. After a seal a single string, number or word of JSON stays one, so that the guest goes on
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
		Mask(data)
	}
	return true
}

// Text returns a text of the guest as it may outlive the call.
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

// Mask overwrites data with the letter x.
func Mask(data []byte) {
	for i := range data {
		data[i] = 'x'
	}
}
