package shares

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// OperatorsWork is what to measure of models' operators on every share.
type OperatorsWork struct {
	// Graphs are ONNX files as the GPU runs them.
	Graphs []string
	// Shares are in % of the GPU's SMs.
	Shares, Batches []int
	// Database is the file whose rows are not measured again, "" for none.
	Database string
}

// OperatorsResult is what a child has measured.
type OperatorsResult struct {
	Rows []database.Row `json:"rows"`
	// Unmeasured says why some operators could not be measured alone.
	Unmeasured []string `json:"unmeasured,omitempty"`
}

// Operators measures the operators on each share in turn, and passes the result of each to take.
func (c *Card) Operators(ctx context.Context, w OperatorsWork, take func(OperatorsResult) error, progress func(done, total int)) error {
	for i, percent := range w.Shares {
		progress(i, len(w.Shares))
		var one OperatorsResult
		if err := c.Run(ctx, percent, &one, "profile", "share", "--graphs", strings.Join(w.Graphs, ","), "--gpu-share", strconv.Itoa(percent),
			"--batch", list(w.Batches), "--known", w.Database, "--gpu-name", c.Machine()); err != nil {
			return err
		}
		if err := take(one); err != nil {
			return err
		}
	}
	progress(len(w.Shares), len(w.Shares))
	return nil
}

// OperatorsChild is the work of one child process.
type OperatorsChild struct {
	Graphs  []string
	Batches []int
	// Percent is the share that the process has. Machine is the GPU's name in rows.
	Percent int
	Machine string
	// Known is the file of rows that are not measured again, "" for none.
	Known string
	// Open and CPU are those of [Child].
	Open func(file string, maxBatch int, plain bool) (Engine, error)
	CPU  func() time.Duration
}

// operatorSpan and operatorPatience are those of a window and a batch of an operator. The
// operators before have settled the clocks.
const operatorSpan, operatorPatience = 10 * time.Millisecond, 120 * time.Millisecond

// Measure does the child's work.
func (c OperatorsChild) Measure(ctx context.Context) (out OperatorsResult, err error) {
	known := &database.Database{}
	if c.Known != "" {
		if known, _, err = operators.Load(c.Known); err != nil {
			return out, err
		}
	}
	m := &measuring.OnGPU{
		Percent: c.Percent, Engine: EngineName(), Machine: c.Machine, CPU: c.CPU, Window: operatorSpan, MaxTime: operatorPatience,
		Open: func(file string, maxBatch int) (measuring.DeviceEngine, error) { return c.Open(file, maxBatch, false) },
	}
	defer func() {
		if closed := m.Close(); err == nil {
			err = closed
		}
	}()
	if err := m.Begin(ctx); err != nil {
		return out, err
	}
	put := func(r database.Row) error {
		if err := r.Validate(); err != nil {
			return err
		}
		out.Rows = append(out.Rows, r)
		return nil
	}
	if err := m.Fixed(ctx, put); err != nil {
		return out, err
	}
	seen := map[string]bool{}
	for _, file := range c.Graphs {
		g, err := readGraph(file)
		if err != nil {
			return out, err
		}
		for _, op := range g.Operators {
			if seen[op.Key()] || op.Unknown || c.has(known, op) {
				continue
			}
			seen[op.Key()] = true
			if err := m.Operator(ctx, op, c.Batches, put); ctx.Err() != nil {
				return out, ctx.Err()
			} else if err != nil {
				out.Unmeasured = append(out.Unmeasured, fmt.Sprintf("%s: %v", op.Type, err))
			}
		}
	}
	return out, nil
}

// has reports whether the database has the operator at all batches on the share.
func (c OperatorsChild) has(known *database.Database, op *operator.Operator) bool {
	rows := known.Lookup(EngineName(), c.Machine, op.Key())
	return !slices.ContainsFunc(c.Batches, func(b int) bool {
		return !slices.ContainsFunc(rows, func(r database.Row) bool { return r.GPU == c.Percent && r.Batch == b })
	})
}

// readGraph reads the operators of a graph.
func readGraph(file string) (*operator.Graph, error) {
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	return operator.Read(m)
}
