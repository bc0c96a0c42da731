package process

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Apart runs f on an OS thread that nothing else uses meanwhile and returns
// when f has. The thread is never the process's main thread, which cannot be
// thrown away. If f returns false the thread is destroyed instead of being
// reused, so nothing that f changed about it can leak into other goroutines.
func Apart(f func() (clean bool)) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Hold the main thread, so that the next try gets another one.
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
