package async

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
)

// childRole is the environment variable with the role of this process instead of a test.
func childRole() string { return os.Getenv("FAAS_INFER_ASYNC_CHILD") }

// children are the processes that tests start and kill.
var children = map[string]func(){"provider": childProvider, "nats": childNATS}

// fatal is the body of a request that kills the provider which executes it.
const fatal = "fatal"

// childProvider is a queue whose function writes each body into a file.
func childProvider() {
	log, err := os.OpenFile(os.Getenv("CHILD_LOG"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	q, err := Open(context.Background(), Options{
		Dir: os.Getenv("CHILD_DIR"), Listen: os.Getenv("CHILD_LISTEN"), URL: os.Getenv("CHILD_URL"), Several: os.Getenv("CHILD_URL") != "", AckWait: time.Second, Concurrency: 16,
		Functions: &deployed{by: map[string]map[string]string{"echo.openfaas-fn": nil}},
		Invoker: invokerFunc(func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
			time.Sleep(time.Millisecond)
			// One write, so that a kill leaves no half line.
			_, err := fmt.Fprintln(log, string(r.Body))
			if string(r.Body) == fatal {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return respond(200, ""), err
		}),
		Spare:  childSpare(log),
		Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := q.Start(); err != nil {
		panic(err)
	}
	select {}
}

// childSpare executes best-effort requests once the file CHILD_IDLE exists.
func childSpare(log *os.File) Spare {
	s := newSpare(func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		_, err := fmt.Fprintln(log, string(r.Body))
		return respond(200, ""), err
	})
	s.look = func() spare.State {
		if _, err := os.Stat(os.Getenv("CHILD_IDLE")); err != nil {
			return spare.State{Ready: 1, CPU: 1}
		}
		return spare.State{Ready: 1}
	}
	return s
}

// childNATS is an external NATS server.
func childNATS() {
	host, at, _ := net.SplitHostPort(os.Getenv("CHILD_LISTEN"))
	n := 0
	fmt.Sscan(at, &n)
	s, err := server.NewServer(&server.Options{Host: host, Port: n, JetStream: true, StoreDir: os.Getenv("CHILD_DIR"), NoSigs: true, MaxPayload: 8 << 20})
	if err != nil {
		panic(err)
	}
	s.Start()
	s.WaitForShutdown()
}

// child is a process that a test may kill.
type child struct {
	t    testing.TB
	env  []string
	cmd  *exec.Cmd
	done chan struct{}
}

// spawn starts this test's binary in a role.
func spawn(t testing.TB, role string, env ...string) *child {
	t.Helper()
	c := &child{t: t, env: append(os.Environ(), append(env, "FAAS_INFER_ASYNC_CHILD="+role)...)}
	c.start()
	t.Cleanup(c.kill)
	return c
}

func (c *child) start() {
	c.t.Helper()
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env, c.cmd.Stderr = c.env, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		defer close(done)
		_ = cmd.Wait() // It was killed.
	}(c.cmd, c.done)
}

// kill is kill -9.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// freeAddress returns a loopback address that stays free while its server is dead.
func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := engine.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// publisher publishes bodies 0, 1, 2, … by several goroutines and remembers
// which were accepted.
type publisher struct {
	mu       sync.Mutex
	accepted []string
	refused  int
	next     int
	stop     chan struct{}
	done     sync.WaitGroup
}

func publish(by int, send func(body string) error) *publisher {
	p := &publisher{stop: make(chan struct{})}
	for range by {
		p.done.Go(func() {
			for {
				select {
				case <-p.stop:
					return
				default:
				}
				p.mu.Lock()
				body := fmt.Sprint(p.next)
				p.next++
				p.mu.Unlock()
				err := send(body)
				p.mu.Lock()
				if err == nil {
					p.accepted = append(p.accepted, body)
				} else {
					p.refused++
				}
				p.mu.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return p
}

func (p *publisher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accepted)
}

func (p *publisher) finish() []string {
	close(p.stop)
	p.done.Wait()
	return p.accepted
}

// listens waits until a child listens at an address.
func listens(t testing.TB, address string) {
	t.Helper()
	until(t, "the provider listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// lines counts how often each line occurs in a file.
func lines(t testing.TB, file string) map[string]int {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		out[strings.TrimSpace(line)]++
	}
	return out
}

// The provider is killed again and again while a gateway publishes. Every accepted
// request is executed, and the gateway reconnects by itself.
func TestProviderKilledUnderLoad(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), freeAddress(t)
	log := filepath.Join(dir, "executed")
	c := spawn(t, "provider", "CHILD_DIR="+filepath.Join(dir, "nats"), "CHILD_LISTEN="+address, "CHILD_LOG="+log)
	listens(t, address)
	g := gateway(t, "nats://"+address, time.Second)
	p := publish(16, func(body string) error { return g.Publish("faas-request", request("echo", body)) })
	for range 5 {
		before := p.count()
		until(t, "the gateway publishes", func() bool { return p.count() > before+200 })
		c.kill()
		c.start()
	}
	before := p.count()
	until(t, "the gateway publishes to the last provider", func() bool { return p.count() > before+200 })
	accepted := p.finish()
	until(t, "all that was accepted has been executed", func() bool {
		done := lines(t, log)
		for _, body := range accepted {
			if done[body] == 0 {
				return false
			}
		}
		return true
	})
	again := 0
	for _, n := range lines(t, log) {
		again += n - 1
	}
	t.Logf("%d accepted, %d refused, %d executed more than once", len(accepted), p.refused, again)
}
