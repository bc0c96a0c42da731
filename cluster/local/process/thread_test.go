package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestApartIsNeverTheMainThread(t *testing.T) {
	threads := map[int]bool{}
	for range 50 {
		Apart(func() (clean bool) {
			threads[unix.Gettid()] = true
			return false
		})
	}
	if threads[unix.Getpid()] {
		t.Error("the main thread was used")
	}
	if len(threads) < 2 {
		t.Error("a thread that was to be thrown away was used again")
	}
}

func TestWhatIsDoneToAThreadGoesWithIt(t *testing.T) {
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	Apart(func() (clean bool) {
		var first unix.CPUSet
		for core := 0; first.Count() == 0; core++ {
			if before.IsSet(core) {
				first.Set(core)
			}
		}
		if err := unix.SchedSetaffinity(0, &first); err != nil {
			t.Error(err)
		}
		return false
	})
	Apart(func() (clean bool) {
		if err := unix.SchedGetaffinity(0, &after); err != nil {
			t.Error(err)
		}
		return true
	})
	if before != after {
		t.Error("another thread has the affinity of one that was thrown away")
	}
}
