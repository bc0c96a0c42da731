package gpu

import (
	"errors"
	"testing"
)

// With a driver the kernel computes. Without one the error says so.
func TestBurner(t *testing.T) {
	b, err := OpenBurner()
	if errors.Is(err, ErrNoDriver) {
		t.Logf("this machine: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Run(1000); err != nil || n != 2*8*256*1000*float64(b.Blocks) || b.SMs < 1 {
		t.Errorf("%v operations on %d multiprocessors, %v", n, b.SMs, err)
	}
}
