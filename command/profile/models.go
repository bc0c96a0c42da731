package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/postmortem"
	"github.com/faas-infer/faas-infer/profiler/measuring"
)

// modelBudget bounds the measurement of one figure of a whole model.
var modelBudget = measuring.Budget{Runs: 5, MinTime: 300 * time.Millisecond, MaxTime: 3 * time.Second}

// timesOptions are the flags of "profile times", which measures whole models as
// they run in an instance, for "faas-infer-lab accuracy". It is a separate process
// because a CPU quota applies to a process.
type timesOptions struct {
	model, prepared, batches string
	threads                  int
	quota, sweep             bool
	yardstick                float64
}

func newProfileTimesCommand() *cobra.Command {
	var o timesOptions
	c := &cobra.Command{
		Use:    "times",
		Short:  "Measure a prepared model, one JSON object a line for each batch",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "the ONNX file, for its inputs")
	f.StringVar(&o.prepared, "prepared", "", "the prepared model's directory")
	f.StringVar(&o.batches, "batches", "1", "batch sizes, separated by commas")
	f.IntVar(&o.threads, "threads", 1, "number of threads")
	f.BoolVar(&o.quota, "quota", false, "this process has a CPU quota: take the mean of consecutive batches")
	f.BoolVar(&o.sweep, "sweep", false, "measure a sweep through the last-level cache instead of a model")
	f.Float64Var(&o.yardstick, "yardstick", 0, "the yardstick in µs on the quiet machine (0: unknown)")
	return c
}

// TimeOf is one line of "profile times".
type TimeOf struct {
	Batch  int              `json:"batch"`
	Sample measuring.Sample `json:"sample"`
}

func (o *timesOptions) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // The standard input ends with the parent process.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	sampler, err := measuring.NewSampler(o.yardstick)
	if err != nil {
		return err
	}
	defer sampler.Close()
	if o.sweep {
		t, err := sampler.Sweep(ctx, modelBudget)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(TimeOf{1, t})
	}
	m, err := model.ReadFile(o.model)
	if err != nil {
		return err
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Prepared: o.prepared, Threads: o.threads})
	if err != nil {
		return err
	}
	defer e.Close()
	to := json.NewEncoder(out)
	for text := range strings.SplitSeq(o.batches, ",") {
		batch, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("--batches: %w", err)
		}
		inputs, err := m.SampleInputs(batch, uint64(batch))
		if err != nil {
			return err
		}
		run := func() error {
			_, err := e.Run(ctx, batch, inputs)
			return err
		}
		budget := modelBudget
		budget.Threads = o.threads
		var t measuring.Sample
		if o.quota {
			t, err = sampler.TakeMean(ctx, modelBudget, run)
		} else {
			t, err = sampler.Take(ctx, budget, nil, run)
		}
		if err != nil {
			return err
		}
		if err := to.Encode(TimeOf{batch, t}); err != nil {
			return err
		}
	}
	return nil
}

// ModelTimes measures whole models in child processes.
type ModelTimes struct {
	known float64
	// tree makes the groups with quotas. It is nil if that is impossible; Why is then
	// the reason.
	tree cgroup.Tree
	Why  error
}

// NewModelTimes returns a ModelTimes. known is the yardstick of the quiet machine in µs, 0
// if it is unknown.
func NewModelTimes(known float64) *ModelTimes {
	t := &ModelTimes{known: known}
	t.tree, t.Why = cgroup.Open(fmt.Sprintf("faas-infer-accuracy-%d", os.Getpid()), false)
	return t
}

// Close removes the control groups.
func (t *ModelTimes) Close() error {
	if t.tree == nil {
		return nil
	}
	return t.tree.Remove()
}

// Measure times a model at the batches on a CPU share in millicores. It calls take for each
// result at once.
func (t *ModelTimes) Measure(ctx context.Context, s *Subject, batches []int, millicores int, take func(TimeOf)) error {
	var list []string
	for _, b := range batches {
		list = append(list, strconv.Itoa(b))
	}
	err := t.runChild(ctx, millicores, take, "--model", s.File, "--prepared", s.Prepared.Dir, "--batches", strings.Join(list, ","),
		"--threads", strconv.Itoa((millicores+999)/1000))
	if err != nil {
		return fmt.Errorf("measure %s: %w", s.Name, err)
	}
	return nil
}

// sweep times a sweep through the last-level cache on a CPU share in millicores.
func (t *ModelTimes) sweep(ctx context.Context, millicores int) (measuring.Sample, error) {
	var found measuring.Sample
	err := t.runChild(ctx, millicores, func(line TimeOf) { found = line.Sample }, "--sweep")
	return found, err
}

// runChild runs "profile times" on a CPU share in millicores.
func (t *ModelTimes) runChild(ctx context.Context, millicores int, take func(TimeOf), arguments ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	arguments = append([]string{"profile", "times", "--yardstick", strconv.FormatFloat(t.known, 'g', -1, 64)}, arguments...)
	if millicores%1000 != 0 {
		arguments = append(arguments, "--quota")
	}
	c := exec.CommandContext(ctx, self, arguments...)
	var complaint strings.Builder
	c.Stderr = &complaint
	alive, err := c.StdinPipe()
	if err != nil {
		return err
	}
	defer alive.Close()
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	leave, err := t.start(c, millicores)
	if err != nil {
		return err
	}
	err = decodeTimes(out, take)
	if waitErr := c.Wait(); waitErr != nil {
		sentence, _ := postmortem.Explain(waitErr, complaint.String())
		err = errors.New(sentence)
	}
	return errors.Join(err, leave())
}

func decodeTimes(out io.Reader, take func(TimeOf)) error {
	decoder := json.NewDecoder(out)
	for {
		var line TimeOf
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		take(line)
	}
}

// start starts the child. A child with a part of a core gets a control group of its own,
// which leave deletes.
func (t *ModelTimes) start(c *exec.Cmd, millicores int) (leave func() error, err error) {
	if millicores%1000 == 0 {
		return func() error { return nil }, c.Start()
	}
	group, err := t.tree.Create(fmt.Sprintf("c%d", millicores), cgroup.Limits{CPU: millicores})
	if err != nil {
		return nil, err
	}
	c.SysProcAttr = &syscall.SysProcAttr{}
	err = group.Spawn(c.SysProcAttr, func() (int, error) {
		if err := c.Start(); err != nil {
			return 0, err
		}
		return c.Process.Pid, nil
	})
	if err != nil {
		return nil, errors.Join(err, group.Delete())
	}
	return group.Delete, nil
}
