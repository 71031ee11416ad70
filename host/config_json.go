package host

import "github.com/kubewasm/kubewasm/host/configfile"

// limitsFields is Limits without its methods.
type limitsFields Limits

// MarshalJSON writes durations as texts, such as "100ms".
func (l Limits) MarshalJSON() ([]byte, error) { return configfile.Marshal(limitsFields(l)) }

// UnmarshalJSON reads the output of MarshalJSON, see package configfile.
func (l *Limits) UnmarshalJSON(data []byte) error { return configfile.JSON(data, (*limitsFields)(l)) }

// circuitBreakerFields is CircuitBreaker without its methods.
type circuitBreakerFields CircuitBreaker

// MarshalJSON writes durations as texts, such as "1m30s".
func (b CircuitBreaker) MarshalJSON() ([]byte, error) {
	return configfile.Marshal(circuitBreakerFields(b))
}

// UnmarshalJSON reads the output of MarshalJSON, see package configfile.
func (b *CircuitBreaker) UnmarshalJSON(data []byte) error {
	return configfile.JSON(data, (*circuitBreakerFields)(b))
}
