package replay

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Answers of two modules that differ in the code of an error are shown with the codes' names.
func TestDifferencesOfCodes(t *testing.T) {
	method := func(kind abi.Kind, result codes.Code) *answer {
		c := &recording.Call{
			Version: &recording.Version{Kind: kind, Imports: []recording.Import{{Module: abi.KindCommon.Module(), Name: "status_reason", Memory: 0b11}}},
			Kind:    recording.ByExport, Function: "p.v1.Test/Echo", Result: uint64(uint32(result)),
			Events: []recording.Event{{Kind: recording.Host, Args: []uint64{9, 2}}, {Kind: recording.Read, Data: []byte("no")}, {Kind: recording.HostReturned}},
		}
		return answerOf(c, &Played{Call: c})
	}
	for _, test := range []struct {
		name     string
		old, new codes.Code
		want     *answersDiffer
	}{
		{"the same code", codes.NotFound, codes.NotFound, nil},
		{"another answer", codes.NotFound, codes.PermissionDenied, &answersDiffer{
			Result, "NotFound → PermissionDenied", "denied, result NotFound: no", "denied, result PermissionDenied: no",
		}},
		{"a failure in place of an answer", codes.NotFound, codes.Internal, &answersDiffer{
			Flipped, "denied → failed", "denied, result NotFound: no", "failed, result Internal: no",
		}},
		{"a code in place of none", codes.Uncoded, codes.Internal, &answersDiffer{
			Result, "Error → Internal", "failed, result Error: no", "failed, result Internal: no",
		}},
		{"a number that is no code", codes.Uncoded, -1, &answersDiffer{
			Result, "Error → code(-1)", "failed, result Error: no", "failed, result code(-1): no",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := method(abi.KindService, test.old).differs(method(abi.KindService, test.new))
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answersDiffer{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
