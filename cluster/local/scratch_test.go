package local

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// Files in /tmp count as memory. A function that has filled /tmp must still be able to run
// a process that clears it.
func TestFullScratchLeavesMemoryForProcesses(t *testing.T) {
	b := open(t, options(t.TempDir(), false))
	if !b.isolated || b.tree == nil {
		t.Log("not the rights for a private /tmp with a limit; nothing more to try")
		return
	}
	s := function(t, "one", "classic", `sh -c 'test "$Http_Path" = /clear && rm /tmp/x || head -c 100M /dev/zero > /tmp/x; ls /tmp'`)
	s.Limits = cluster.Resources{Memory: 32 << 20}
	instance := begin(t, b, s)
	expect(t, b, "one", cluster.Ready)
	if got := ask(t, instance, "/"); !strings.Contains(got, "No space left on device") || !strings.HasSuffix(got, "x\n") {
		t.Errorf("filling: %q", got)
	}
	if got := ask(t, instance, "/clear"); got != "" {
		t.Errorf("clearing: %q", got)
	}
}
