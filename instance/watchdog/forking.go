package watchdog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wholeBody is how large a request's body may be to be read before the
	// program starts. It fits into a pipe.
	wholeBody = 64 << 10
	// lateTime is how long a client may take to read the answer that its request
	// took too long.
	lateTime = 5 * time.Second
	// lingerTime is how long, behind the answer, a client may take to send the
	// rest of a body that nobody wants. Were the connection closed under it, it
	// would take that for a failure and not look at the answer.
	lingerTime = 500 * time.Millisecond
)

// ForkingHandler answers requests. It is an http.Handler and safe for concurrent use.
type ForkingHandler struct {
	// Family starts the processes, Program is what they run.
	Family  *Family
	Program Program
	Log     *LineLog
	// Hold keeps an answer back until the process has ended, so that its exit
	// status decides on the answer's code. Without, what the process writes
	// leaves at once, and it is killed if the client hangs up.
	Hold bool
	// Headers gives the process the request's headers as Http_NAME.
	Headers bool
	// Combine puts what the process writes to its standard error into the
	// answer instead of the log, where its lines have the prefix.
	Combine bool
	Prefix  string
	// ContentType is that of every answer; if empty, that of the request, or
	// what the answer looks like.
	ContentType string
	// TimeLimit is how long a request may take, 0 for no limit.
	TimeLimit func(*http.Request) time.Duration

	// held is how many bytes of answers wait for their processes to end.
	held atomic.Int64
}

// buffers are for copying bodies, and from pipes, which hold twice as much.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, 32<<10)
	return &buffer
}}

// run is one request that a process of its own answers.
type run struct {
	*ForkingHandler
	request *http.Request
	began   time.Time
	member  *Member
	answer  *answer
	// consumed tells that the request's body has been read to its end.
	consumed atomic.Bool
	// fed is closed when the process has got all that it will get.
	fed chan struct{}
	// cause is why the process was killed.
	cause atomic.Pointer[error]
}

var (
	errTimeout    = errors.New("the function took longer than exec_timeout")
	errHungUp     = errors.New("the client hung up")
	errBrokenBody = errors.New("the request's body broke off")
)

// ServeHTTP answers one request.
func (h *ForkingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := &run{ForkingHandler: h, request: r, began: time.Now(), fed: make(chan struct{})}
	f.answer = &answer{w: w, run: f, hold: h.Hold}
	body, err := f.readSmall()
	if err != nil {
		// A client that sent half a body hardly reads an answer.
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.Log.Printf("Forking fprocess.")
	pipes, err := f.start()
	if err != nil {
		h.cannotStart(w, err)
		return
	}
	defer pipes.Close()
	defer f.stopFeeding()
	defer f.answer.release()
	f.exchange(pipes, body)
	f.finish()
}

// readSmall reads a small body whole. Its result is then read instead of
// the request's.
func (f *run) readSmall() (io.Reader, error) {
	r := f.request
	if r.ContentLength < 0 || r.ContentLength > wholeBody {
		return r.Body, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("%w: %w", errBrokenBody, err)
	}
	f.consumed.Store(true)
	return bytes.NewReader(body), nil
}

// start starts the process.
func (f *run) start() (*Pipes, error) {
	p, err := OpenPipes(f.Combine)
	if err != nil {
		return nil, err
	}
	program := f.Program
	if f.Headers {
		program.Env = append(program.Env[:len(program.Env):len(program.Env)], requestEnv(f.request)...)
	}
	f.member, err = f.Family.Start(program, p.Theirs)
	p.CloseTheirs()
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// exchange carries the request to the process and its answer back, and returns
// once the process is gone.
func (f *run) exchange(p *Pipes, body io.Reader) {
	go f.feed(p.Stdin, body)
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		if p.Stderr != nil {
			f.Log.Copy(p.Stderr, f.Prefix)
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(p)
	}()
	f.collect(p.Stdout)
	<-watched
	<-logged
	// A process that left its group may have the pipe and not read.
	_ = p.Stdin.SetWriteDeadline(time.Unix(1, 0))
}

// feed is what the process reads; of what it does not want, nothing is kept.
func (f *run) feed(stdin *os.File, body io.Reader) {
	defer close(f.fed)
	body = watchedBody{body, &f.consumed}
	_, err := io.Copy(stdin, body)
	unwanted := errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) || isClosed(f.member.Exited())
	if err != nil && !unwanted {
		// Half an input must not pass for all of it, as it would if the process saw its
		// end first.
		f.kill(fmt.Errorf("%w: %w", errBrokenBody, err))
	}
	_ = stdin.Close()
	if err != nil && unwanted {
		_, _ = io.Copy(io.Discard, body)
	}
}

// stopFeeding waits until nobody reads the request's body any more. The answer
// is on its way then, or has broken off.
func (f *run) stopFeeding() {
	// Without a body to read, the connection is watched for its end already, and
	// the deadline would pass for that, for the requests after this one too.
	if !isClosed(f.fed) && !f.consumed.Load() {
		patience := lingerTime
		if f.answer.failed != nil {
			patience = 0
		}
		_ = http.NewResponseController(f.answer.w).SetReadDeadline(time.Now().Add(patience))
	}
	<-f.fed
}

// watchedBody tells when a body has ended.
type watchedBody struct {
	io.Reader
	ended *atomic.Bool
}

// Read is an io.Reader's.
func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// watch kills the process when its time is over, and returns when it has ended.
func (f *run) watch(p *Pipes) {
	var late <-chan time.Time
	if limit := f.TimeLimit(f.request); limit > 0 {
		timer := time.NewTimer(limit - time.Since(f.began))
		defer timer.Stop()
		late = timer.C
	}
	// The classic watchdog lets a process finish for which nobody waits.
	var hungUp <-chan struct{}
	if !f.Hold {
		hungUp = f.request.Context().Done()
	}
	select {
	case <-f.member.Exited():
	case <-late:
		f.kill(errTimeout)
		// A client that does not read would keep collect for ever.
		_ = http.NewResponseController(f.answer.w).SetWriteDeadline(time.Now().Add(lateTime))
	case <-hungUp:
		f.kill(errHungUp)
	}
	<-f.member.Exited()
	p.EndOutput()
}

// kill ends the process and what it has started, unless it has ended by
// itself; the first cause counts.
func (f *run) kill(cause error) {
	if isClosed(f.member.Exited()) {
		return
	}
	f.cause.CompareAndSwap(nil, &cause)
	f.member.Signal(unix.SIGKILL)
}

// collect hands on what the process writes until it has ended.
func (f *run) collect(stdout io.Reader) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, err := stdout.Read(*buffer)
		if n > 0 {
			if failed := f.answer.write((*buffer)[:n]); failed != nil && !f.Hold {
				f.kill(errHungUp)
			}
		}
		if err != nil {
			return
		}
	}
}

// finish ends the answer as the process ended.
func (f *run) finish() {
	took := time.Since(f.began)
	verdict := f.verdict()
	if verdict != nil {
		f.Log.Printf("fprocess failed: %v", verdict)
	}
	f.Log.Printf("Wrote %d Bytes - Duration: %.6fs", f.answer.size, took.Seconds())
	f.answer.finish(verdict, took)
}

// verdict is nil if the process has done its work.
func (f *run) verdict() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	return f.member.Failure()
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
