package python

import (
	"os/exec"
	"testing"

	"github.com/rs/zerolog"
)

// A warm process that ends while it is stopped has closed its pipe already.
func TestTheWarmProcessEndsWhileItIsStopped(t *testing.T) {
	w, err := NewWarmth(t.TempDir(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("true")
	alive, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	w.running["0000000000000000"] = &warmProcess{command: c, alive: alive}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
