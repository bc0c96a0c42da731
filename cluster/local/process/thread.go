package process

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Apart runs f on an OS thread that nothing else uses meanwhile, and returns when f has
// returned. If f returns false, Apart destroys the thread, so changes that f made to it
// cannot leak into other goroutines. It never uses the main thread, which cannot be
// destroyed.
func Apart(f func() (clean bool)) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Keep the main thread busy, so the next try gets another one.
			Apart(f)
			runtime.UnlockOSThread()
			close(done)
			return
		}
		defer close(done)
		if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
