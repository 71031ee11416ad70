package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// duration is a time.Duration as it is written in a configuration file, such as
// "100ms".
type duration time.Duration

func (d duration) IsZero() bool { return d == 0 }

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// limitsJSON is Limits with its durations as texts.
type limitsJSON struct {
	*limitsFields
	Timeout      *duration `json:"timeout,omitzero"`
	BuildTimeout *duration `json:"buildTimeout,omitzero"`
	Compile      *duration `json:"compile,omitzero"`
}

// limitsFields is Limits without its methods.
type limitsFields Limits

func (l *Limits) json() *limitsJSON {
	return &limitsJSON{(*limitsFields)(l), (*duration)(&l.Timeout), (*duration)(&l.BuildTimeout), (*duration)(&l.Compile)}
}

// MarshalJSON writes durations as texts, such as "100ms".
func (l Limits) MarshalJSON() ([]byte, error) { return json.Marshal(l.json()) }

// UnmarshalJSON reads what MarshalJSON writes. A field that does not exist is an error.
func (l *Limits) UnmarshalJSON(data []byte) error { return unmarshalFields(data, l.json()) }

// circuitBreakerJSON is CircuitBreaker with its durations as texts.
type circuitBreakerJSON struct {
	*circuitBreakerFields
	Backoff    *duration `json:"backoff,omitzero"`
	MaxBackoff *duration `json:"maxBackoff,omitzero"`
}

// circuitBreakerFields is CircuitBreaker without its methods.
type circuitBreakerFields CircuitBreaker

func (b *CircuitBreaker) json() *circuitBreakerJSON {
	return &circuitBreakerJSON{(*circuitBreakerFields)(b), (*duration)(&b.Backoff), (*duration)(&b.MaxBackoff)}
}

// MarshalJSON writes durations as texts, such as "1m30s".
func (b CircuitBreaker) MarshalJSON() ([]byte, error) { return json.Marshal(b.json()) }

// UnmarshalJSON reads what MarshalJSON writes. A field that does not exist is an error.
func (b *CircuitBreaker) UnmarshalJSON(data []byte) error { return unmarshalFields(data, b.json()) }

// unmarshalFields decodes a JSON object into the struct that to points to. Every field that
// the struct does not have is an error.
func unmarshalFields(data []byte, to any) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(to).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	var errs []error
	for name := range given {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("unknown field %q%s", name, nearest.Hint("; ", name, known)))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(errs) != 0 || given == nil {
		return errors.Join(errs...)
	}
	return json.Unmarshal(data, to)
}
