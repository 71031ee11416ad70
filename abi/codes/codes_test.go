package codes_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/kubewasm/kubewasm/abi/codes"
)

func TestCode(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		name    string
		failure bool
	}{
		codes.OK:                 {"OK", false},
		codes.Uncoded:            {"Error", true},
		codes.Unknown:            {"Unknown", true},
		codes.InvalidArgument:    {"InvalidArgument", false},
		codes.DeadlineExceeded:   {"DeadlineExceeded", true},
		codes.NotFound:           {"NotFound", false},
		codes.AlreadyExists:      {"AlreadyExists", false},
		codes.PermissionDenied:   {"PermissionDenied", false},
		codes.ResourceExhausted:  {"ResourceExhausted", false},
		codes.FailedPrecondition: {"FailedPrecondition", false},
		codes.Aborted:            {"Aborted", false},
		codes.OutOfRange:         {"OutOfRange", false},
		codes.Unimplemented:      {"Unimplemented", true},
		codes.Internal:           {"Internal", true},
		codes.Unavailable:        {"Unavailable", true},
		codes.DataLoss:           {"DataLoss", true},
		codes.Unauthenticated:    {"Unauthenticated", false},
		17:                       {"code(17)", true},
		-1:                       {"code(-1)", true},
		math.MinInt32:            {"code(-2147483648)", true},
		math.MaxInt32:            {"code(2147483647)", true},
	} {
		if got := code.String(); got != want.name {
			t.Errorf("String of %d is %q, want %q", int32(code), got, want.name)
		}
		if got := code.Failure(); got != want.failure {
			t.Errorf("Failure of %s is %t, want %t", code, got, want.failure)
		}
	}
	// The numbers of google.rpc.Code.
	if codes.Unknown != 2 || codes.NotFound != 5 || codes.FailedPrecondition != 9 || codes.Unimplemented != 12 || codes.Unauthenticated != 16 {
		t.Error("a number is not that of google.rpc.Code")
	}
}

// A code prints its name in gRPC for Go, and tells whether the plugin failed.
func Example() {
	fmt.Println(codes.NotFound, codes.NotFound.Failure())
	fmt.Println(codes.Unavailable, codes.Unavailable.Failure())
	// Output:
	// NotFound false
	// Unavailable true
}
