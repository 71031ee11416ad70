package race

import (
	"os"
	"os/exec"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

func TestUnderTheRaceDetector(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling everything again takes minutes")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the race detector needs a C compiler, and gcc is not installed")
		}
		t.Skip("the race detector needs a C compiler, and gcc is not installed")
	}
	if err := guestbuild.NoteSources("."); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-race", "-timeout", "20m",
		"../../abi", "../../codec/...", "../../host/...", "../../internal/snapmem", "../../sched", "../../admission/...", "../../hooks/..."}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	t.Logf("%s", out)
}
