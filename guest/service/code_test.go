package service

import (
	"github.com/kubewasm/kubewasm/abi/codes"

	"errors"
	"fmt"
	"testing"
)

// The number of an error crosses to the host, and that of the host's error becomes its code.
func TestCodesOfErrors(t *testing.T) {
	no := errors.New("no")
	for _, test := range []struct {
		name   string
		err    error
		number codes.Code
		code   codes.Code
	}{
		{"no code", no, 1, codes.Unknown},
		{"a code", NewError(codes.NotFound, no), codes.NotFound, codes.NotFound},
		{"a code that is wrapped", fmt.Errorf("%w", NewError(codes.Aborted, no)), codes.Aborted, codes.Aborted},
		{"OK, which is an error all the same", NewError(codes.OK, no), 1, codes.Unknown},
		{"a number that is no code", NewError(-1<<31, no), -1 << 31, -1 << 31},
	} {
		text, number := failure(test.err)
		if text != "no" || number != test.number || CodeOf(test.err) != test.code || !errors.Is(test.err, no) {
			t.Errorf("%s: got %q with the number %d and the code %s", test.name, text, number, CodeOf(test.err))
		}
		if of := errorOf(number, text); CodeOf(of) != test.code || of.Error() != "no" {
			t.Errorf("%s: the error of the host is %v with the code %s", test.name, of, CodeOf(of))
		}
	}
	if CodeOf(nil) != codes.OK {
		t.Errorf("no error has the code %s", CodeOf(nil))
	}
}
