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

	"github.com/faas-infer/faas-infer/instance/duplex"
)

const (
	// wholeBody is the maximum size in bytes of a body that is read before the program
	// starts. It fits into a pipe.
	wholeBody = 64 << 10
	// lateTime is how long a client may take to read the answer to a request that took
	// too long.
	lateTime = 5 * time.Second
	// abandonedTime is the Abandoned of functions. Without it clients could start processes that nobody ends.
	abandonedTime = time.Minute
)

// ForkingHandler answers each request by a process of its own. It is an http.Handler and
// safe for concurrent use.
type ForkingHandler struct {
	// Family starts the processes, Program is what they run.
	Family  *Family
	Program Program
	Log     *LineLog
	// Hold holds an answer back until the process has ended: its exit status decides the
	// answer's status. If the client hangs up, the process runs on for a time. Otherwise the output is sent at once, and the process is killed if
	// the client hangs up.
	Hold bool
	// Headers passes the request's headers to the process as Http_NAME.
	Headers bool
	// Combine puts the process's standard error into the answer. Otherwise its lines go to
	// the log after Prefix.
	Combine bool
	Prefix  string
	// ContentType is the content type of every answer. If empty, it is that of the
	// request, or detected from the answer.
	ContentType string
	// TimeLimit returns the maximum time of a request, 0 for no limit.
	TimeLimit func(*http.Request) time.Duration

	// Abandoned is how long a process without a time limit may run on with Hold after its client has hung up.
	Abandoned time.Duration

	// held is the number of bytes of answers that wait for their processes to end.
	held atomic.Int64
}

// buffers pools buffers to copy bodies and pipes. A pipe holds twice as much as one buffer.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, 32<<10)
	return &buffer
}}

// run is one request and the process that answers it.
type run struct {
	*ForkingHandler
	request *http.Request
	began   time.Time
	member  *Member
	answer  *answer
	// consumed says that the request's body has been read to its end.
	consumed atomic.Bool
	// fed is closed when the process gets no more of the request's body.
	fed chan struct{}
	// cause says why the process was killed, nil if it was not.
	cause atomic.Pointer[error]
}

var (
	errTimeout    = errors.New("the function took longer than exec_timeout")
	errHungUp     = errors.New("the client hung up")
	errAbandoned  = errors.New("the client hung up long ago, and exec_timeout is not set")
	errBrokenBody = errors.New("the request's body broke off")
)

// ServeHTTP answers one request.
func (h *ForkingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := &run{ForkingHandler: h, request: r, began: time.Now(), fed: make(chan struct{})}
	f.answer = &answer{w: w, run: f, hold: h.Hold}
	body, err := f.readSmall()
	if err != nil {
		// A client that broke off its body rarely reads the answer.
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

// readSmall returns the body to pass to the process. It reads a small body completely.
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
	p, err := openPipes(f.Combine)
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

// exchange passes the request to the process and the answer back. It returns once the
// process has ended.
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
	// A process that left its group may still hold the pipe without reading.
	_ = p.Stdin.SetWriteDeadline(time.Unix(1, 0))
}

// feed copies the body to the process. It discards what the process does not read.
func (f *run) feed(stdin *os.File, body io.Reader) {
	defer close(f.fed)
	body = watchedBody{body, &f.consumed}
	_, err := io.Copy(stdin, body)
	unwanted := errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) || isClosed(f.member.Exited())
	if err != nil && !unwanted {
		// The process must be killed before stdin closes: otherwise it would take half an
		// input for a complete one.
		f.kill(fmt.Errorf("%w: %w", errBrokenBody, err))
	}
	_ = stdin.Close()
	if err != nil && unwanted {
		_, _ = io.Copy(io.Discard, body)
	}
}

// stopFeeding waits until no goroutine reads the request's body. It is called after the
// answer was written or broke off.
func (f *run) stopFeeding() {
	// After the body's end, net/http reads the connection to notice a client that hangs up.
	// A deadline would apply to that read and to later requests.
	if !isClosed(f.fed) && !f.consumed.Load() {
		patience := duplex.Linger
		if f.answer.failed != nil {
			patience = 0
		}
		_ = http.NewResponseController(f.answer.w).SetReadDeadline(time.Now().Add(patience))
	}
	<-f.fed
}

// watchedBody is a body that sets ended when it has been read to its end.
type watchedBody struct {
	io.Reader
	ended *atomic.Bool
}

// Read implements io.Reader.
func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// watch kills the process at its time limit, and returns when it has ended.
func (f *run) watch(p *Pipes) {
	var late <-chan time.Time
	if limit := f.TimeLimit(f.request); limit > 0 {
		timer := time.After(limit - time.Since(f.began))
		late = timer
	}
	hungUp := f.request.Context().Done()
	var abandoned <-chan time.Time
	for ended := false; !ended; {
		select {
		case <-f.member.Exited():
			ended = true
		case <-late:
			f.kill(errTimeout)
			// A client that does not read would block collect for ever.
			_ = http.NewResponseController(f.answer.w).SetWriteDeadline(time.Now().Add(lateTime))
			ended = true
		case <-hungUp:
			hungUp = nil
			switch {
			case !f.Hold:
				f.kill(errHungUp)
				ended = true
			case late == nil: // The classic watchdog lets a process finish.
				abandoned = time.After(f.Abandoned)
			}
		case <-abandoned:
			f.kill(errAbandoned)
			ended = true
		}
	}
	<-f.member.Exited()
	p.EndOutput()
}

// kill kills the process's group, unless the process has already ended. The first cause
// counts.
func (f *run) kill(cause error) {
	if isClosed(f.member.Exited()) {
		return
	}
	f.cause.CompareAndSwap(nil, &cause)
	f.member.Signal(unix.SIGKILL)
}

// collect passes the process's output to the answer until the process has ended.
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

// finish ends the answer with the process's verdict and writes it to the log.
func (f *run) finish() {
	took := time.Since(f.began)
	verdict := f.verdict()
	if verdict != nil {
		f.Log.Printf("fprocess failed: %v", verdict)
	}
	f.Log.Printf("Wrote %d Bytes - Duration: %.6fs", f.answer.size, took.Seconds())
	f.answer.finish(verdict, took)
}

// verdict returns nil if the process succeeded, otherwise why it failed or was killed.
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
