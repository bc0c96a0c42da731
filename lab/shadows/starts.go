package shadows

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/relay"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
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
		took, err := s.timed(ctx, fmt.Sprint("shadow-", i), "--shadow", s.phi.String(), "--relay", "unix://"+s.socket(fmt.Sprint("relay-", i)), "--standby", s.dir)
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
	c, err := s.o.Start(append([]string{"instance", "--name", rig.FunctionName, "--prepared", s.prepared, "--listen", "unix://" + socket}, arguments...)...)
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

// echo copies inputs to outputs.
type echo struct{}

// Run implements [relay.Handler].
func (echo) Run(_ context.Context, _, _ int, inputs []tensor.Tensor, into [][]byte) error {
	for i := range into {
		copy(into[i], inputs[i].Data)
	}
	return nil
}

const (
	transferTimes = 300
	transferMiB   = 2
)

// transfer measures the relay over a Unix socket: a small message there and back, and one with some
// rows of an image model's input there. This side copies them into the memory once, as a body does
// whose Φ begins with the model's inputs; other tensors are computed where they are read.
func transfer(ctx context.Context, r *report.Report) error {
	dir, err := os.MkdirTemp("", "faas-infer-relay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(serving, l, relay.Identity{}, echo{}, zerolog.Nop()) }()
	defer func() { cancel(); <-ended }()
	p, err := relay.Dial(ctx, (*mutual.Identity)(nil).Dial, "unix", l.Addr().String(), relay.Identity{})
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := relay.NewMemory()
	if err != nil {
		return err
	}
	defer func() { _ = m.Retire() }()
	median := func(size int) (float64, error) {
		from := make([]byte, size)
		part, err := m.Lend(int64(size) + 64)
		if err != nil {
			return 0, err
		}
		defer m.Free(part)
		into := part.Data()[size:]
		var all []float64
		for range transferTimes {
			began := time.Now()
			copy(part.Data()[:size], from)
			in := tensor.Tensor{Type: tensor.FP32, Shape: []int64{1, int64(size / 4)}, Data: part.Data()[:size]}
			if _, err := p.Run(ctx, relay.Job{Rows: 1, Within: time.Minute, Inputs: []tensor.Tensor{in}, Into: [][]byte{into}, Memory: m}); err != nil {
				return 0, err
			}
			all = append(all, rig.Milliseconds(time.Since(began)))
		}
		return rig.Median(all), nil
	}
	fixed, err := median(64)
	if err != nil {
		return err
	}
	large, err := median(transferMiB << 20)
	if err != nil {
		return err
	}
	r.Add("transfer.fixed_ms", fixed, "ms", "a message there and back")
	r.Add("transfer.ms_per_mib", (large-fixed)/transferMiB, "ms/MiB", "one way, copied once")
	return nil
}
