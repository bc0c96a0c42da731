package watchdog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wholeBody is how large a request's body may be to be read before the
	// program starts. It fits into a pipe.
	wholeBody = 64 << 10
	// leftoverTime is how long a pipe is read that a process which left its
	// group keeps open after the program has ended.
	leftoverTime = 100 * time.Millisecond
)

// run is one request that a process of its own answers.
type run struct {
	server  *Server
	request *http.Request
	began   time.Time
	member  *member
	answer  *answer
	// consumed tells that the request's body has been read to its end.
	consumed atomic.Bool
	// fed is closed when the process has got all that it will get.
	fed chan struct{}
	// cause is why the process was killed.
	cause atomic.Pointer[error]
	// kills is the number of processes that were killed for want of memory
	// before.
	kills uint64
}

var (
	errTimeout     = errors.New("the function's process took longer than exec_timeout")
	errHungUp      = errors.New("the client hung up")
	errBrokenBody  = errors.New("the request's body broke off")
	errOutOfMemory = errors.New("out of memory: the function's process was killed at its memory limit")
)

// fork answers a request by a process of its own.
func (s *Server) fork(w http.ResponseWriter, r *http.Request) {
	f := &run{server: s, request: r, began: time.Now(), fed: make(chan struct{})}
	f.answer = &answer{w: w, run: f, hold: s.config.Mode == Classic}
	body, err := f.readSmall()
	if err != nil {
		// Whoever sent half a body hardly reads an answer.
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.log.Printf("Forking fprocess.")
	f.kills = s.family.launcher.OutOfMemory()
	pipes, err := f.start()
	switch {
	case errors.Is(err, errClosing):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		s.log.Printf("Cannot start fprocess: %v", err)
		http.Error(w, "cannot start the function's process: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer pipes.close()
	f.exchange(pipes, body)
	f.finish()
}

// readSmall reads a small body whole. What it returns is then read instead of
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
func (f *run) start() (*pipes, error) {
	s := f.server
	p, err := openPipes(s.config.CombineOutput)
	if err != nil {
		return nil, err
	}
	env := s.env
	env = append(env[:len(env):len(env)], requestEnv(f.request, s.config.Headers)...)
	f.member, err = s.family.start(s.program, s.config.Process, &os.ProcAttr{Env: env, Files: p.theirs[:]})
	p.closeTheirs()
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// exchange carries the request to the process and its answer back, and returns
// once the process is gone.
func (f *run) exchange(p *pipes, body io.Reader) {
	go f.feed(p.stdin, body)
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		if p.stderr != nil {
			f.server.log.Copy(p.stderr, f.server.prefix("stderr: "))
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(p)
	}()
	f.collect(p.stdout)
	<-watched
	<-logged
	f.stopFeeding()
}

// feed is what the process reads.
func (f *run) feed(stdin *os.File, body io.Reader) {
	defer close(f.fed)
	defer stdin.Close()
	_, err := io.Copy(stdin, watchedBody{body, &f.consumed})
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, os.ErrClosed) {
		// Half an input must not pass for all of it.
		f.kill(fmt.Errorf("%w: %w", errBrokenBody, err))
	}
}

// stopFeeding waits until nobody reads the request's body any more.
func (f *run) stopFeeding() {
	select {
	case <-f.fed:
	default:
		_ = http.NewResponseController(f.answer.w).SetReadDeadline(time.Unix(1, 0))
		<-f.fed
	}
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
func (f *run) watch(p *pipes) {
	var late <-chan time.Time
	if limit := f.server.timeLimit(f.request); limit > 0 {
		timer := time.NewTimer(limit - time.Since(f.began))
		defer timer.Stop()
		late = timer.C
	}
	// The classic watchdog lets a process finish for which nobody waits.
	var hungUp <-chan struct{}
	if f.server.config.Mode == Streaming {
		hungUp = f.request.Context().Done()
	}
	select {
	case <-f.member.exited:
	case <-late:
		f.kill(errTimeout)
	case <-hungUp:
		f.kill(errHungUp)
	}
	<-f.member.exited
	_ = p.stdout.SetReadDeadline(time.Unix(1, 0)) // collect sets another one
	if p.stderr != nil {
		_ = p.stderr.SetReadDeadline(time.Now().Add(leftoverTime))
	}
}

// kill ends the process and what it has started, unless it has ended by
// itself; the first cause counts.
func (f *run) kill(cause error) {
	if isClosed(f.member.exited) {
		return
	}
	f.cause.CompareAndSwap(nil, &cause)
	f.member.signal(unix.SIGKILL)
}

// collect hands on what the process writes until it has ended.
func (f *run) collect(stdout *os.File) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		over := isClosed(f.member.exited)
		if over {
			_ = stdout.SetReadDeadline(time.Now().Add(leftoverTime))
		}
		n, err := stdout.Read(*buffer)
		if n > 0 {
			if failed := f.answer.write((*buffer)[:n]); failed != nil && f.server.config.Mode == Streaming {
				f.kill(errHungUp)
			}
		}
		if err != nil && (over || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return
		}
	}
}

// finish ends the answer as the process ended.
func (f *run) finish() {
	took := time.Since(f.began)
	verdict := f.verdict()
	if verdict != nil {
		f.server.log.Printf("fprocess failed: %v", verdict)
	}
	f.server.log.Printf("Wrote %d Bytes - Duration: %.6fs", f.answer.size, took.Seconds())
	f.answer.finish(verdict, took)
}

// verdict is nil if the process has done its work.
func (f *run) verdict() error {
	if cause := f.cause.Load(); cause != nil {
		return *cause
	}
	status := f.member.status
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return nil
	case status.Signaled() && status.Signal() == unix.SIGKILL && f.server.family.launcher.OutOfMemory() > f.kills:
		return errOutOfMemory
	}
	return errors.New(statusText(status))
}

// statusText says how a process ended.
func statusText(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
