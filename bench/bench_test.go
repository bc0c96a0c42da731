package bench

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMedian(t *testing.T) {
	for want, xs := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}, 7: {7}} {
		if got := median(xs); got != want {
			t.Errorf("median of %v is %v, want %v", xs, got, want)
		}
	}
}

func TestProcessFigures(t *testing.T) {
	// It is told in steps of 10 ms, which take longer where others use the cores.
	var used time.Duration
	var err error
	for began := time.Now(); used <= 0 && err == nil && time.Since(began) < time.Minute; {
		used, err = processorTime(os.Getpid())
	}
	if err != nil || used <= 0 || used > time.Hour {
		t.Errorf("this process has used %v: %v", used, err)
	}
	if resident, err := statusField(os.Getpid(), "VmRSS"); err != nil || resident < 1024 {
		t.Errorf("this process has %v kB: %v", resident, err)
	}
	if _, err := statusField(os.Getpid(), "NoSuchField"); err == nil {
		t.Error("a field that is not there is found")
	}
}

// What is started on a core is held to it, and the thread is free again after.
func TestOnCore(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	core := 0
	for !before.IsSet(core) {
		core++
	}
	if err := onCore(core, func() error { return unix.SchedGetaffinity(0, &during) }); err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if during.Count() != 1 || !during.IsSet(core) || after != before {
		t.Errorf("cores before %v, during %v, after %v", before.Count(), during.Count(), after.Count())
	}
}
