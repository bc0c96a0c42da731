package cuda

/*
#include "session.h"
*/
import "C"

// Burner keeps the GPU's share busy with multiply-adds of 32-bit numbers, to measure how fast
// the share computes.
type Burner struct {
	// SMs is the number of multiprocessors that the process may use.
	SMs     int
	engine  C.engine
	session C.session
	burner  C.burner
}

const (
	// multiprocessors is the driver's number of that attribute. Under MPS its value is the share's, once the process
	// has a context.
	multiprocessors = 16
	threads         = 256
	// chains is the number of multiply-adds of a thread in a round; each is two operations.
	chains = 8
	// blocks fill the largest GPU several times over. All shares get the same work, so it
	// takes longer on a smaller one.
	blocks = 16 * 132
)

// OpenBurner loads the kernel onto the first GPU that the process sees. The error wraps
// [ErrDevice].
func OpenBurner() (*Burner, error) {
	if err := openDriver(); err != nil {
		return nil, refused(err)
	}

	b := &Burner{}
	var version, sms C.int
	steps := []func() *C.char{
		func() *C.char { return C.device_open(&version) },
		func() *C.char { return C.device_context(&b.engine) },
		func() *C.char { return C.device_attribute(0, multiprocessors, &sms) },
		func() *C.char { return C.stream_open(&b.engine, &b.session) },
		func() *C.char { return C.burner_open(&b.engine, &b.burner) },
	}
	for _, step := range steps {
		if err := failed(step()); err != nil {
			b.Close()
			return nil, refused(err)
		}
	}
	b.SMs = int(sms)
	return b, nil
}

// Run does a number of rounds and returns the number of floating-point operations.
func (b *Burner) Run(rounds int) (operations float64, err error) {
	if err := failed(C.burner_run(&b.engine, &b.session, &b.burner, blocks, threads, C.uint(rounds))); err != nil {
		return 0, err
	}
	return 2 * chains * threads * blocks * float64(rounds), nil
}

// Close gives the kernel's memory and the context back.
func (b *Burner) Close() {
	C.device_release(&b.engine, b.burner.sum)
	b.burner.sum = 0
	C.session_close(&b.engine, &b.session)
	C.engine_close(&b.engine)
}
