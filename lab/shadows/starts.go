package shadows

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// startTimes is the number of starts that are measured.
const startTimes = 7

// starts measures the time from an order until an instance serves.
func (s *subject) starts(ctx context.Context, r *report.Report) error {
	var shadows, twins, woken []float64
	for i := range startTimes {
		end, err := s.empty()
		if err != nil {
			return fmt.Errorf("the empty instance: %w", err)
		}
		took, err := s.timed(ctx, fmt.Sprint("shadow-", i), "shadow", "--shadow", s.phi.String(), "--relay", "unix://"+s.socket(fmt.Sprint("relay-", i)), "--standby", s.dir)
		end()
		if err != nil {
			return err
		}
		shadows = append(shadows, took)
		if took, err = s.timed(ctx, fmt.Sprint("twin-", i), "--warm-up", "0s"); err != nil {
			return err
		}
		twins = append(twins, took)
		if took, err = s.wake(ctx); err != nil {
			return err
		}
		woken = append(woken, took)
	}
	r.Add("start_ms.shadow", rig.Median(shadows), "ms", "from the order until it serves, from an empty instance; "+s.name)
	r.Add("start_ms.twin", rig.Median(twins), "ms", "a new process with the whole model, which is mapped already; "+s.name)
	r.Add("start_ms.unpark", rig.Median(woken), "ms", "a stopped instance until it answers; "+s.name)
	return nil
}

// empty starts an instance without a model.
func (s *subject) empty() (end func(), err error) {
	c := exec.Command(s.o.Program, "instance", "stand-by", "--empty", "--socket", filepath.Join(s.dir, "empty.sock"))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, fmt.Errorf("it ended: %w", c.Wait())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return func() {
		_ = in.Close()
		_ = c.Process.Kill()
		_ = c.Wait() // It was killed.
	}, nil
}

// timed starts an instance, waits until it is ready, stops it, and returns the time in ms.
func (s *subject) timed(ctx context.Context, name string, arguments ...string) (float64, error) {
	socket := s.socket(name)
	began := time.Now()
	c, err := s.o.Start(append(append([]string{"instance"}, arguments...), "--name", rig.FunctionName, "--prepared", s.prepared, "--listen", "unix://"+socket)...)
	if err != nil {
		return 0, err
	}
	defer c.Stop()
	if err := answers(ctx, socket); err != nil {
		return 0, fmt.Errorf("%w: %s", err, c.Said())
	}
	return rig.Milliseconds(time.Since(began)), nil
}

// answers waits until an instance is ready, and looks twice a millisecond.
func answers(ctx context.Context, socket string) error {
	client := rig.OverUnix(socket)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if status, _, err := rig.Get(ctx, client, "http://instance/_/ready"); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the instance does not answer: %w", ctx.Err())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// wake stops the whole instance, wakes it and waits for an answer.
func (s *subject) wake(ctx context.Context) (float64, error) {
	client := &http.Client{Transport: s.whole.over}
	if _, _, err := rig.Get(ctx, client, "http://instance/_/ready"); err != nil {
		return 0, err
	}
	p := s.whole.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	_, _, err := rig.Get(ctx, client, "http://instance/_/ready")
	return rig.Milliseconds(time.Since(began)), err
}

// transfer measures the relay over a Unix socket.
func transfer(ctx context.Context, r *report.Report) (shadow.Transfer, error) {
	t, err := layers.Crossing(ctx)
	if err == nil {
		r.Add("transfer.fixed_ms", 2*t.Fixed, "ms", "a message there and back")
		r.Add("transfer.ms_per_mib", t.PerMiB, "ms/MiB", "one way, copied once")
	}
	return t, err
}
