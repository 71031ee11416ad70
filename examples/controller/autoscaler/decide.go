package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/kubewasm/kubewasm/examples/controller/scaler"
)

// decision is a valid answer of a guest.
type decision struct {
	replicas int32
	reason   string
	digest   string
}

// maxReasonBytes and maxErrorBytes are the lengths to which a reason and an error are cut. An Event
// takes 1 KiB.
const maxReasonBytes, maxErrorBytes = 256, 768

// answerError is the error of a guest with an invalid answer.
type answerError struct{ text string }

func (e *answerError) Error() string { return "the guest answered " + e.text }

// ask calls a guest. An answer without replicas means the current number of the workload.
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

// bounded returns the number of replicas within the bounds, and the reason that it was changed,
// empty if it was not.
func bounded(replicas, low, high int32) (int32, string) {
	switch {
	case replicas < low:
		return low, fmt.Sprintf("the guest wants %d, but minReplicas is %d", replicas, low)
	case replicas > high:
		return high, fmt.Sprintf("the guest wants %d, but maxReplicas is %d", replicas, high)
	}
	return replicas, ""
}

// short cuts a text of a guest to one line of UTF-8 of at most n bytes.
func short(text string, n int) string {
	text = text[:min(len(text), 4*n)] // The text may have a mebibyte.
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	const ellipsis = "…"
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) <= n {
		return text
	}
	// A character that is cut leaves bytes that are not UTF-8.
	return strings.ToValidUTF8(text[:n-len(ellipsis)], "") + ellipsis
}
