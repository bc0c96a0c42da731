package python

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"github.com/faas-infer/faas-infer/postmortem"
)

// killed is true only for SIGKILL. Kills of other processes in the control group say nothing
// about a process that ended otherwise.
func TestWhatTheKernelCanHaveKilled(t *testing.T) {
	for script, want := range map[string]bool{"kill -KILL $$": true, "kill -SEGV $$": false, "exit 3": false, "exit 137": false} {
		var exit *exec.ExitError
		if err := exec.Command("/bin/sh", "-c", script).Run(); !errors.As(err, &exit) {
			t.Fatalf("%s: %v", script, err)
		}
		if status := exit.Sys().(syscall.WaitStatus); killed(status) != want {
			t.Errorf("%s, which %s: killed is %v", script, postmortem.Status(status), !want)
		}
	}
}
