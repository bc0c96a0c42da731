package children

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// Work that nobody waits for gets only CPU time that nobody else wants.
func TestBackgroundWorkIsIdle(t *testing.T) {
	before := StartIdle
	StartIdle = process.StartIdle // As in the program; the other tests wait for such work.
	defer func() { StartIdle = before }()
	for weight, want := range map[Weight]int{Foreground: unix.SCHED_NORMAL, Background: unix.SCHED_IDLE} {
		var out strings.Builder
		c := exec.Command("cat", "/proc/self/stat")
		c.Stdout = &out
		if err := new(Models).runChild(c, weight); err != nil {
			t.Fatal(err)
		}
		// The policy is field 41 of proc_pid_stat(5). The second one ends with the last parenthesis.
		_, rest, _ := strings.Cut(out.String(), ")")
		if policy := strings.Fields(rest)[41-3]; policy != strconv.Itoa(want) {
			t.Errorf("background %v: it runs with the policy %s, want %d", weight, policy, want)
		}
	}
}
