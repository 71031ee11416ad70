package serving

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WriteStatus answers a request about which there is no review: with the code and a
// Status of the Kubernetes API in JSON, on one line. An API server drops a text, and
// tells its client that there was no more information; of a Status it hands the message
// on: failed calling webhook "…": failed to call webhook: <message>.
func WriteStatus(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(StatusBody(code, message)) // The client is gone, and there is no other to tell.
}

// StatusBody returns the text that WriteStatus writes.
func StatusBody(code int, message string) []byte {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: message, Reason: Reasons[int32(code)], Code: int32(code),
	})
	if err != nil {
		panic(err) // It has strings and numbers.
	}
	return append(text, '\n')
}

// Reasons are the reasons that belong to HTTP codes, as in
// k8s.io/apimachinery/pkg/api/errors. 422 has none: of a status whose reason is Invalid
// kubectl prints the causes instead of the message, in which the API server names the
// webhook and we the policy. Clients know that the object is invalid by the code.
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

// Timeout returns how long a request may take, as the query of an API server says: unsaid if it
// says nothing, and at most longest. A tenth is left for the way back, 50 ms at least and
// 500 ms at most.
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
