package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Work is the work of one process on its share of a GPU.
type Work struct {
	// Model is a model file; "" is a kernel of multiply-adds.
	Model string
	// Batch is the number of requests in one execution of the model.
	Batch int
	// Each is how long the process works.
	Each time.Duration
	// CPU runs the model on the CPU, to try the bench without a GPU.
	CPU bool
}

// Outcome is the result of a process's work.
type Outcome struct {
	// SMs is the number of multiprocessors that a kernel could use.
	SMs int `json:"sms,omitzero"`
	// GFLOPS is the computation rate of a kernel.
	GFLOPS float64 `json:"gflops,omitzero"`
	// Runs is the number of executions. Median and P99 are their times in ms.
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// ready is the line that a process writes when it waits for the start.
const ready = "ready"

// Do warms up, writes ready, waits for a line, works, and writes the outcome as JSON. The
// line starts several processes at the same time.
func (w Work) Do(ctx context.Context, in io.Reader, out io.Writer) error {
	run, done, outcome, err := w.open()
	if err != nil {
		return err
	}
	defer done()
	for range 3 {
		if _, err := run(); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	var times []float64
	operations, begin := 0.0, time.Now()
	for time.Since(begin) < w.Each && ctx.Err() == nil {
		at := time.Now()
		n, err := run()
		if err != nil {
			return err
		}
		operations += n
		times = append(times, float64(time.Since(at))/float64(time.Millisecond))
	}
	if len(times) == 0 {
		return fmt.Errorf("no execution finished: %w", context.Cause(ctx))
	}
	outcome.GFLOPS = operations / time.Since(begin).Seconds() / 1e9
	slices.Sort(times)
	outcome.Runs, outcome.Median, outcome.P99 = len(times), times[len(times)/2], times[len(times)*99/100]
	return json.NewEncoder(out).Encode(outcome)
}

// open prepares the work. run does it once and returns the number of floating-point
// operations, 0 for a model.
func (w Work) open() (run func() (float64, error), done func(), o Outcome, err error) {
	if w.Model != "" {
		s, err := openSession(w)
		if err != nil {
			return nil, nil, o, err
		}
		return func() (float64, error) { return 0, s.run() }, s.close, o, nil
	}
	b, err := OpenBurner()
	if err != nil {
		return nil, nil, o, err
	}
	o.SMs = b.SMs
	const rounds = 20_000 // A few milliseconds on a whole GPU.
	return func() (float64, error) { return b.Run(rounds) }, func() {}, o, nil
}
