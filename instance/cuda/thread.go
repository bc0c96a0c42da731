package cuda

import "runtime"

// thread runs functions on one thread of the operating system. ONNX Runtime's CUDA provider
// keeps handles of CUDA's libraries for each thread that runs a session, which cost memory and
// milliseconds.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{make(chan func())}
	go func() {
		// Not unlocked: the thread ends with the goroutine, and its handles with it.
		runtime.LockOSThread()
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do runs f and waits for it.
func (t *thread) do(f func() error) (err error) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

func (t *thread) end() { close(t.work) }
