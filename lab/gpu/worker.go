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

// Work is what one process does on its share of a GPU.
type Work struct {
	// Model is a model file; "" is a kernel of multiply-adds.
	Model string
	// Batch is how many requests one execution of the model takes.
	Batch int
	// Each is how long it works.
	Each time.Duration
	// CPU has the model run on the CPU, to try this where there is no GPU.
	CPU bool
}

// Outcome is what a process did.
type Outcome struct {
	// SMs is how many multiprocessors it could use, for a kernel.
	SMs int `json:"sms,omitzero"`
	// GFLOPS is what it computed in a second, for a kernel.
	GFLOPS float64 `json:"gflops,omitzero"`
	// Runs counts executions; Median and P99 are their times in ms.
	Runs   int     `json:"runs"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// ready is what a process says when it waits for its turn.
const ready = "ready"

// Do warms up, says that it is ready, waits for a line, works, and writes the
// outcome: so several processes can begin at once.
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
		return fmt.Errorf("wait for the beginning: %w", err)
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
		return fmt.Errorf("nothing was executed: %w", context.Cause(ctx))
	}
	outcome.GFLOPS = operations / time.Since(begin).Seconds() / 1e9
	slices.Sort(times)
	outcome.Runs, outcome.Median, outcome.P99 = len(times), times[len(times)/2], times[len(times)*99/100]
	return json.NewEncoder(out).Encode(outcome)
}

// open prepares the work: run does it once and says how many operations that were, as
// far as is known.
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
