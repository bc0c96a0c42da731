package cuda

/*
#include "session.h"
*/
import "C"

// lost is the error of a run after which the process's context cannot be used any more. The driver
// ends it after a kernel's fault, and under MPS after a fault of any process on the GPU.
type lost struct{ error }

// Lost marks the error for package instance: no request of the batch runs again here.
func (lost) Lost() bool { return true }

func (l lost) Unwrap() error { return l.error }

// Failed gets one error if the GPU's context has ended: every later run fails. Only a new process
// gets another context, so the process should end.
func (e *Engine) Failed() <-chan error { return e.failed }

// examined returns the error of a run, as [lost] if the context has ended. Otherwise the model or the
// inputs are the reason, and the next run may work. The caller holds the engine's lock.
func examined(e *Engine, err error) error {
	if err == nil {
		return nil
	}
	// The lock keeps out a capture of the stream, which a check would end.
	l := e.lanes[0]
	l.mu.Lock()
	ended := failed(C.stream_check(e.c, l.c))
	l.mu.Unlock()
	if ended == nil {
		return err
	}
	err = lost{err}
	select {
	case e.failed <- err:
	default:
	}
	return err
}
