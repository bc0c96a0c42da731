package gpu

import (
	"errors"
	"testing"
)

// Where there is a driver, it computes; where there is none, it says so.
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
