package recording

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
)

// The error of a method is a failure, or an answer that refuses: its code says which. A recording
// shows it by the name of the code.
func TestVerdictsOfMethods(t *testing.T) {
	version := &Version{Kind: abi.KindService}
	for _, test := range []struct {
		result uint64
		want   Verdict
		text   string
	}{
		{0, Answered, "p.v1.Test/Echo returned OK"},
		{1, Failed, "p.v1.Test/Echo returned Error"},
		{uint64(codes.Unknown), Failed, "p.v1.Test/Echo returned Unknown"},
		{uint64(codes.NotFound), Denied, "p.v1.Test/Echo returned NotFound"},
		{uint64(codes.Internal), Failed, "p.v1.Test/Echo returned Internal"},
		{uint64(codes.Unauthenticated), Denied, "p.v1.Test/Echo returned Unauthenticated"},
		{17, Failed, "p.v1.Test/Echo returned code(17)"},
		{0xffffffff, Failed, "p.v1.Test/Echo returned code(-1)"},
		{0x80000000, Failed, "p.v1.Test/Echo returned code(-2147483648)"},
	} {
		c := &Call{Version: version, Kind: ByExport, Function: "p.v1.Test/Echo", Result: test.result}
		if got := VerdictOf(c); got != test.want {
			t.Errorf("%s: got %s, want %s", test.text, got, test.want)
		}
		if got := c.Describe(); got != test.text {
			t.Errorf("got %q, want %q", got, test.text)
		}
	}
	dialect := &Call{Version: &Version{Kind: abi.KindAdmission, Dialect: "kubewarden"}, Kind: ByExport, Function: "__guest_call", Result: 5}
	if got, want := dialect.Describe(), "__guest_call returned 0x5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
