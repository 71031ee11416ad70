package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// decision is an answer of a guest that counts.
type decision struct {
	replicas int32
	reason   string
	digest   string
}

// maxReasonBytes and maxErrorBytes are how much of a reason, and of an error, is kept. An Event
// takes 1 KiB.
const maxReasonBytes, maxErrorBytes = 256, 768

// answerError is the error of a guest whose answer is none.
type answerError struct{ text string }

func (e *answerError) Error() string { return "the guest answered " + e.text }

// ask asks a guest. An answer without replicas is the number that the workload has.
func ask(ctx context.Context, s *scaler.Scaler, req *scaler.ReplicasRequest) (decision, error) {
	ctx, digest := withDigest(ctx)
	resp, err := s.Replicas(ctx, req)
	if err != nil {
		return decision{}, err
	}
	d := decision{req.Workload.SpecReplicas, short(resp.Reason, maxReasonBytes), *digest}
	if resp.Replicas != nil {
		d.replicas = *resp.Replicas
	}
	if d.replicas < 0 {
		return decision{}, &answerError{fmt.Sprintf("%d replicas", d.replicas)}
	}
	return d, nil
}

// bounded returns the number of replicas within the bounds, and what is wrong with the number,
// empty if nothing is.
func bounded(replicas, low, high int32) (int32, string) {
	switch {
	case replicas < low:
		return low, fmt.Sprintf("the guest wants %d, minReplicas is %d", replicas, low)
	case replicas > high:
		return high, fmt.Sprintf("the guest wants %d, maxReplicas is %d", replicas, high)
	}
	return replicas, ""
}

// short returns a text of a guest as one line of UTF-8 of at most n bytes.
func short(text string, n int) string {
	text = cut.Text(text, 4*n) // It may be a mebibyte.
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return cut.Marked(text, n)
}
