package swap

import "testing"

// A release counts the users to none, another user comes, and the version is replaced before the
// release looks whether it is.
func TestAReleaseThatIsInterrupted(t *testing.T) {
	var v Value[int]
	v.Replace(1)
	version := v.Acquire()
	version.users.Add(-1)
	other := v.Acquire()
	drained := v.Replace(2)
	version.settle()
	select {
	case <-drained:
		t.Fatal("drained while version 1 is used")
	default:
	}
	other.Release()
	<-drained
}
