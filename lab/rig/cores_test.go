package rig

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Processes started on a core are pinned to it. The thread has its own cores again
// afterwards.
func TestRun(t *testing.T) {
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
	if err := RunOnCore(core, func() error { return unix.SchedGetaffinity(0, &during) }); err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if during.Count() != 1 || !during.IsSet(core) || after != before {
		t.Errorf("cores before %v, during %v, after %v", before.Count(), during.Count(), after.Count())
	}
}
