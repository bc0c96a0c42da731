package forward

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// process is a program in memory that can be stopped, as by SIGSTOP: its connections are
// taken, and nothing is answered until it goes on.
type process struct {
	conns  chan net.Conn
	closed chan struct{}
	// status is its answer, 200 if 0.
	status atomic.Int64

	mu      sync.Mutex
	running chan struct{} // closed while it runs
}

func (p *process) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *process) Close() error {
	close(p.closed)
	return nil
}

func (p *process) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = make(chan struct{})
}

func (p *process) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.running)
}

// ServeHTTP answers at once, but at /slow after 10 s, and at /endless for ever.
func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/slow" {
		time.Sleep(10 * time.Second)
	}
	for r.URL.Path == "/endless" && r.Context().Err() == nil {
		_, _ = io.WriteString(w, "more")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(10 * time.Second)
	}
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	<-running
	w.WriteHeader(cmp.Or(int(p.status.Load()), http.StatusOK))
	io.WriteString(w, "ok")
}

// stoppable is a forwarder with programs in memory.
type stoppable struct {
	*Forwarder
	t         *testing.T
	mu        sync.Mutex
	processes map[string]*process
	suspects  chan bool
	lost      chan cluster.InstanceID
}

func newStoppable(t *testing.T) *stoppable {
	s := &stoppable{t: t, processes: map[string]*process{}, suspects: make(chan bool, 64), lost: make(chan cluster.InstanceID, 4)}
	s.Forwarder = New(Options{
		ColdWait: time.Minute, Recorder: &record{},
		OnLost:    func(id cluster.InstanceID, _ error) { s.lost <- id },
		OnSuspect: func(_ cluster.InstanceID, suspect bool) { s.suspects <- suspect },
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			s.mu.Lock()
			p := s.processes[address]
			s.mu.Unlock()
			p.conns <- theirs
			return ours, nil
		},
	})
	t.Cleanup(s.Close)
	return s
}

func (s *stoppable) start(id string) *process {
	p := &process{conns: make(chan net.Conn, 256), closed: make(chan struct{}), running: make(chan struct{})}
	close(p.running)
	s.mu.Lock()
	s.processes[id] = p
	s.mu.Unlock()
	server := &http.Server{Handler: p}
	go server.Serve(p)
	s.t.Cleanup(func() {
		select {
		case <-p.running:
		default:
			p.goOn()
		}
		server.Close()
	})
	s.Up(cluster.InstanceID(id), "fake", id, 1)
	return p
}

func (s *stoppable) send(path string) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Invoke(s.t.Context(), &frame.Request{Method: "POST", Path: path, Header: http.Header{}})
		done <- err
	}()
	return done
}

// A stopped instance gets no new requests after some seconds, and is lost after half a minute.
func TestStoppedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		a := s.start("a")
		a.stop()
		stuck, began := s.send("/"), time.Now()
		if !<-s.suspects || time.Since(began) > 5*time.Second {
			t.Errorf("it is suspected after %v", time.Since(began))
		}
		s.start("b")
		if err := <-s.send("/"); err != nil {
			t.Errorf("a request beside it: %v", err)
		}
		if id := <-s.lost; id != "a" || time.Since(began) < giveUp || time.Since(began) > giveUp+5*time.Second {
			t.Errorf("%s is lost after %v", id, time.Since(began))
		}
		a.goOn() // The backend kills it, which ends its requests.
		if err := <-stuck; err != nil {
			t.Error(err)
		}
	})
}

// One that goes on gets requests again.
func TestStoppedInstanceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		a := s.start("a")
		a.stop()
		stuck := s.send("/")
		<-s.suspects
		waiting := s.send("/")
		a.goOn()
		for _, done := range []chan error{stuck, waiting} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if <-s.suspects || len(s.lost) > 0 {
			t.Error("it is still suspected, or lost")
		}
	})
}

// A slow program is not suspected: it answers when it is asked.
func TestSlowProgramIsNotSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.start("a")
		err := <-s.send("/slow")
		time.Sleep(time.Minute) // A last question may have been asked as the answer came.
		if err != nil || len(s.suspects)+len(s.lost) > 0 {
			t.Errorf("%v, suspected %d times, lost %d times", err, len(s.suspects), len(s.lost))
		}
	})
}

// An instance whose watchdog does not keep to exec_timeout keeps nobody waiting for longer.
func TestStoppedInstanceWithExecTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.SetExecTimeout(ExecTimeout(map[string]string{"exec_timeout": "3s"}))
		a := s.start("a")
		if err := <-s.send("/"); err != nil {
			t.Error(err)
		}
		a.stop()
		began := time.Now()
		if err := <-s.send("/"); !errors.Is(err, ErrExecTimeout) || time.Since(began) != 3*time.Second+execGrace {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		a.goOn()
	})
}

// A request that no client waits for is ended if its answer does not end, whatever it sends
// meanwhile.
func TestEndlessAnswer(t *testing.T) {
	for text, want := range map[string]time.Duration{"": maxHeldTime, "1m": time.Minute + answerGrace} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			s.SetExecTimeout(ExecTimeout(map[string]string{"exec_timeout": text}))
			s.start("a")
			began := time.Now()
			err := <-s.send("/endless")
			if took := time.Since(began) - s.options.ColdWait; !errors.Is(err, ErrEndless) || took != want {
				t.Errorf("exec_timeout %q: %v after %v, want %v", text, err, took, want)
			}
			if stats := s.Stats(); stats.InFlight != 0 || len(s.lost)+len(s.suspects) > 0 {
				t.Errorf("%+v, lost %v, suspected %v", stats, s.lost, s.suspects)
			}
			time.Sleep(time.Minute) // The program notices it with its next write.
		})
	}
}

// A bad exec_timeout is none, as for the watchdog.
func TestExecTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "10s": 10 * time.Second, "10": 10 * time.Second, "-1s": 0, "soon": 0} {
		if got := ExecTimeout(map[string]string{"exec_timeout": text}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
