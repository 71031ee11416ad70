package serving_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAnswersThatComeTooLate has a handler that takes longer than the server gives it. Over TLS the
// client is told of damage, until crypto/tls closes such connections in silence: see
// docs/upstream.md.
func TestAnswersThatComeTooLate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The deadline of the connection has passed by the time of the answer.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte("late"))
	}))
	server.StartTLS()
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("the late answer is %s", resp.Status)
	}
	if !strings.Contains(err.Error(), "bad record MAC") {
		t.Errorf("got error %v: docs/upstream.md can say that crypto/tls closes without an alert", err)
	}
}
