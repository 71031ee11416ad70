package serving

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WriteStatus answers a request without a review: with the code and a Status of the Kubernetes API
// in JSON, on one line. An API server drops plain text, and tells its client that there was no more
// information. It passes on the message of a Status: failed calling webhook "…": failed to call
// webhook: <message>.
func WriteStatus(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(StatusBody(code, message)) // If the client is gone, nobody reads the answer.
}

// StatusBody returns the text written by WriteStatus.
func StatusBody(code int, message string) []byte {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: message, Reason: Reasons[int32(code)], Code: int32(code),
	})
	if err != nil {
		panic(err) // Never happens: it has only strings and numbers.
	}
	return append(text, '\n')
}

// Reasons are the reasons that belong to HTTP codes, as in k8s.io/apimachinery/pkg/api/errors. 422
// has none: for the reason Invalid, kubectl prints the causes instead of the message, in which the
// API server names the webhook and this package the policy. The code already tells clients that the
// object is invalid.
var Reasons = map[int32]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonGone,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// Timeout returns the time for a request, from the query of an API server: unsaid if the query has
// none, and at most longest. It subtracts a tenth for the response, at least 50 ms and at most 500
// ms.
func Timeout(r *http.Request, unsaid, longest time.Duration) (time.Duration, error) {
	timeout := unsaid
	if text := r.URL.Query().Get("timeout"); text != "" {
		var err error
		if timeout, err = time.ParseDuration(text); err != nil || timeout <= 0 {
			return 0, fmt.Errorf("timeout is %q, want a duration such as 10s", text)
		}
	}
	timeout = min(timeout, longest)
	return timeout - min(max(timeout/10, 50*time.Millisecond), 500*time.Millisecond, timeout/2), nil
}
