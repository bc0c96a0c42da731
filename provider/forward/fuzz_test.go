package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// world is a function whose instances are in memory and come and go.
type world struct {
	*Forwarder
	t    *testing.T
	work sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*pipeInstance
	executed  map[string]int
	last      int
}

// pipeInstance answers over pipes.
type pipeInstance struct {
	world  *world
	takes  time.Duration
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (in *pipeInstance) Accept() (net.Conn, error) {
	select {
	case c := <-in.conns:
		return c, nil
	case <-in.closed:
		return nil, net.ErrClosed
	}
}

func (in *pipeInstance) Close() error {
	in.once.Do(func() { close(in.closed) })
	return nil
}

func (in *pipeInstance) Addr() net.Addr { return &net.UnixAddr{} }

// ServeHTTP refuses every fifth request as a watchdog does, and echoes others.
func (in *pipeInstance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id, _, _ := strings.Cut(string(body), " ")
	if strings.HasSuffix(id, "5") && in.takes > 20*time.Millisecond {
		w.Header().Set(refusedHeader, "watchdog")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	in.world.mu.Lock()
	in.world.executed[id]++
	in.world.mu.Unlock()
	select {
	case <-time.After(in.takes):
	case <-in.closed:
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}

func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	in := w.instances[address]
	w.mu.Unlock()
	ours, theirs := net.Pipe()
	select {
	case in.conns <- ours:
		return theirs, nil
	case <-in.closed:
		return nil, errors.New("connection refused")
	}
}

func (w *world) start(takes time.Duration) {
	in := &pipeInstance{world: w, takes: takes, conns: make(chan net.Conn), closed: make(chan struct{})}
	in.server = &http.Server{Handler: in}
	w.work.Go(func() { in.server.Serve(in) })
	w.mu.Lock()
	w.last++
	id := fmt.Sprint(w.last)
	w.instances[id] = in
	w.mu.Unlock()
	w.Up(cluster.InstanceID(id), "fake", id, 1)
}

// pick returns one of the instances that were started and live.
func (w *world) pick(n int) (string, *pipeInstance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.last {
		id := fmt.Sprint(1 + (n+i)%w.last)
		select {
		case <-w.instances[id].closed:
		default:
			return id, w.instances[id]
		}
	}
	return "", nil
}

// request sends one request, hangs up after patience and checks the answer.
func (w *world) request(n int, size int, patience time.Duration) {
	body := fmt.Sprint(n, " ", strings.Repeat("x", size))
	ctx, leave := context.WithTimeout(context.Background(), patience)
	defer leave()
	resp, err := w.Invoke(ctx, post(body))
	w.mu.Lock()
	times := w.executed[fmt.Sprint(n)]
	w.mu.Unlock()
	switch {
	case times > 1:
		w.t.Errorf("request %d was executed %d times", n, times)
	case err == nil && resp.Status == http.StatusTooManyRequests:
		if times > 0 {
			w.t.Errorf("request %d was executed and refused", n)
		}
	case err == nil:
		if string(resp.Body) != body || times != 1 {
			w.t.Errorf("request %d was executed %d times and answered with %.20q", n, times, resp.Body)
		}
	case errors.Is(err, ErrInstanceLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrCold), errors.Is(err, ErrBusy):
	default:
		w.t.Errorf("request %d: %v", n, err)
	}
}

// act carries out one step of a script.
func (w *world) act(i int, op byte) {
	arg := int(op >> 3)
	switch op & 7 {
	case 0, 1, 2:
		w.work.Go(func() { w.request(i, 1+arg*arg*arg*5, time.Hour) })
	case 3:
		w.work.Go(func() { w.request(i, arg, time.Duration(arg)*3*time.Millisecond) })
	case 4:
		w.start(time.Duration(arg) * 2 * time.Millisecond)
	case 5:
		if id, in := w.pick(arg); in != nil { // Retired: it answers what it has.
			w.work.Go(func() {
				if err := w.Drain(context.Background(), cluster.InstanceID(id)); err != nil {
					w.t.Error(err)
				}
				in.server.Close()
				w.Forget(cluster.InstanceID(id))
			})
		}
	case 6:
		if id, in := w.pick(arg); in != nil { // Killed, and noticed later.
			in.server.Close()
			w.work.Go(func() {
				time.Sleep(time.Duration(arg) * time.Millisecond)
				w.Forget(cluster.InstanceID(id))
			})
		}
	case 7:
		time.Sleep(time.Duration(arg) * time.Millisecond)
	}
}

// Each request is answered exactly once and executed at most once, whatever clients and
// instances do.
func FuzzExactlyOnce(f *testing.F) {
	f.Add([]byte{4, 0, 8, 16, 4 | 10<<3, 24, 5, 0, 6, 2, 7 | 5<<3, 4, 1, 1, 1})
	f.Add([]byte{0, 1, 2, 3 | 4<<3, 4 | 20<<3, 0, 0, 0, 0, 7 | 10<<3, 6, 4 | 20<<3, 5 | 1<<3})
	f.Add(bytes.Repeat([]byte{0, 11, 4 | 12<<3, 0, 2, 9, 0, 16, 5 | 3<<3, 7 | 8<<3, 6 | 4<<3, 7 | 15<<3}, 12))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 500 {
			script = script[:500]
		}
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, instances: map[string]*pipeInstance{}, executed: map[string]int{}}
			w.Forwarder = New(Options{ColdWait: time.Minute, Recorder: &record{}, Dial: w.dial})
			for i, op := range script {
				w.act(i, op)
			}
			time.Sleep(2 * time.Minute)
			if s := w.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("in the end: %+v", s)
			}
			w.Close()
			for _, in := range w.instances {
				in.server.Close()
			}
			w.work.Wait()
		})
	})
}
