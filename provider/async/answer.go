package async

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// maxKept is the maximum size in bytes of an answer that is kept for a callback.
	maxKept = 64 << 20
	// maxDiscarded is the maximum size in bytes of an answer that nobody is called back with.
	maxDiscarded = 1 << 30
	// maxInMemory is the size in bytes above which an answer goes to a file.
	maxInMemory = 1 << 20
	// maxSpooled is the maximum size in bytes of the files of all answers. One function may
	// hold as much as it leaves free. Each file counts as a multiple of spoolStep, which also
	// bounds the number of files.
	maxSpooled = 1 << 30
	spoolStep  = 4 << 20
)

// errAnswerTooLarge answers a callback for an answer above maxKept. The request is not tried
// again: its status is in no function's codes unless a deployment says so.
var errAnswerTooLarge = &web.Error{Status: http.StatusInsufficientStorage,
	Text: fmt.Sprintf("the function's answer is larger than %d MiB, the limit for callbacks", maxKept>>20)}

// errEndlessAnswer ends the execution of a request without a callback that answers more than
// maxDiscarded.
var errEndlessAnswer = &web.Error{Status: http.StatusInsufficientStorage, Final: true,
	Text: fmt.Sprintf("the function's answer is larger than %d MiB, the limit without a callback", maxDiscarded>>20)}

// errNoRoom puts a request off whose answer finds no room.
var errNoRoom = web.Unavailable(time.Second, "the answers that wait for their callbacks take all the room allowed, or this function's share of it")

// discarded is the size in bytes of an answer that nobody is called back with.
type discarded int64

// Write implements io.Writer. It keeps nothing. The error is errEndlessAnswer.
func (d *discarded) Write(p []byte) (int, error) {
	if *d += discarded(len(p)); *d > maxDiscarded {
		return 0, errEndlessAnswer
	}
	return len(p), nil
}

// spool is where answers are kept that memory has no room for.
type spool struct {
	dir  string
	held *web.Budget
}

// newSpool returns a spool of files in a directory, the system's for temporary files if dir
// is "".
func newSpool(dir string) *spool {
	return &spool{dir, web.NewBudget(web.BudgetOptions{Limit: maxSpooled, Full: errNoRoom, FunctionShare: errNoRoom})}
}

// answer keeps a function's answer until its callback has it: in memory while it is small and
// the queue's budget has room, otherwise in a file without a name. Only one goroutine uses it.
type answer struct {
	spool *spool
	m     *queue.Message
	name  string

	// resultOnly: there is no callback. The result is then dropped if it is larger than maxResult bytes, and
	// the rest of it is read.
	resultOnly, dropped bool
	maxResult           int64
	rest                discarded

	memory []byte
	file   *os.File
	// size is that of the file, charge what it holds of the spool.
	size   int64
	charge web.Charge
}

// Write implements io.Writer. The error is a *web.Error if there is no room.
func (a *answer) Write(p []byte) (int, error) {
	size := int64(len(a.memory)+len(p)) + a.size
	if a.resultOnly && (a.dropped || size > a.maxResult) {
		return a.drop(p)
	}
	switch {
	case size > maxKept:
		return 0, errAnswerTooLarge
	case a.file == nil && size <= maxInMemory && a.grow(int(size)):
		a.memory = append(a.memory, p...)
		return len(p), nil
	case a.file == nil:
		if err := a.spill(); err != nil {
			return 0, err
		}
	}
	return a.append(p)
}

// drop forgets a result that is too large to be kept.
func (a *answer) drop(p []byte) (int, error) {
	if !a.dropped {
		a.dropped, a.rest = true, discarded(int64(len(a.memory))+a.size)
		a.m.Release(int64(cap(a.memory)))
		a.end()
		a.memory, a.file, a.size = nil, nil, 0
	}
	return a.rest.Write(p)
}

// grow makes room for size bytes in memory and reports whether the budget has it.
func (a *answer) grow(size int) bool {
	if size <= cap(a.memory) {
		return true
	}
	larger := max(size, 2*cap(a.memory), 512)
	if !a.m.Hold(int64(larger - cap(a.memory))) {
		return false
	}
	a.memory = append(make([]byte, 0, larger), a.memory...)
	return true
}

// spill moves what is in memory to a file.
func (a *answer) spill() (err error) {
	if a.spool.dir != "" {
		err = os.MkdirAll(a.spool.dir, 0o700)
	}
	if err == nil {
		a.file, err = os.CreateTemp(a.spool.dir, "answer-")
	}
	if err != nil {
		return unkept(err)
	}
	a.charge = a.spool.held.ChargeFunction(a.name)
	// Without a name it does not outlive this process.
	if err := os.Remove(a.file.Name()); err != nil {
		return unkept(err)
	}
	memory := a.memory
	if a.memory = nil; memory == nil {
		return nil
	}
	_, err = a.append(memory)
	a.m.Release(int64(cap(memory)))
	return err
}

// append writes to the file.
func (a *answer) append(p []byte) (int, error) {
	if a.size+int64(len(p)) > a.charge.Held() {
		if err := a.charge.Take((int64(len(p))/spoolStep + 1) * spoolStep); err != nil {
			return 0, err
		}
	}
	n, err := a.file.Write(p)
	a.size += int64(n)
	if err != nil {
		return n, unkept(err)
	}
	return n, nil
}

// unkept is the error of an answer that the disk does not take.
func unkept(err error) error {
	return web.Unavailable(time.Second, "the answer cannot be kept for its callback: %v", err)
}

// body returns the whole answer and its size in bytes.
func (a *answer) body() (io.ReaderAt, int64) {
	if a.file != nil {
		return a.file, a.size
	}
	return bytes.NewReader(a.memory), int64(len(a.memory))
}

// end forgets the answer. The message gives back what it holds in memory.
func (a *answer) end() {
	if a.file == nil {
		return
	}
	_ = a.file.Close() // Nobody needs what could be lost.
	a.charge.Release()
}
