package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// handlers is the number of handlers whose memory is measured together.
const handlers = 4

// memory measures the memory that several handlers of one environment hold together, with
// and without a warm process. Pages that processes share are counted once.
func (p Handler) memory(ctx context.Context, o rig.Options, dir string, r *report.Report) error {
	prepared, err := o.Models.Prepare(ctx, filepath.Join(dir, "mlp", bundle.ManifestFile))
	if err != nil {
		return err
	}
	read, err := python.Read(prepared)
	if err != nil {
		return err
	}
	without, err := held(ctx, read, nil)
	if err != nil {
		return err
	}
	warm, err := python.NewWarmth(filepath.Join(dir, "warm-memory"), zerolog.Nop())
	if err != nil {
		return err
	}
	defer warm.Close()
	ready, err := warm.Keep(read)
	if err != nil {
		return err
	}
	<-ready
	with, err := held(ctx, read, warm)
	if err != nil {
		return err
	}
	r.Add("memory.without_mib", mebibytes(without), "MiB", fmt.Sprintf("%d handlers with TensorFlow and the MLP, each started again", handlers))
	r.Add("memory.with_mib", mebibytes(with), "MiB", "the same forked from a warm process, and that process")
	r.Add("ratio.memory_with_over_without", mebibytes(with)/mebibytes(without), "ratio", "")
	return nil
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// held returns the bytes that handlers and the warm processes hold together, after each
// handler has answered once.
func held(ctx context.Context, p python.Prepared, warm *python.Warmth) (total int64, err error) {
	o := python.Options{Prepared: p, Threads: 1, Logger: zerolog.Nop()}
	var pids []int
	if warm != nil {
		o.Warm, pids = warm.Dir(), warm.Processes()
	}
	for range handlers {
		engine, openErr := python.Open(ctx, o)
		if openErr != nil {
			return 0, openErr
		}
		defer func() { err = errors.Join(err, engine.Close()) }()
		if _, forked := engine.LoadTime(); forked != (warm != nil) {
			return 0, fmt.Errorf("forked from a warm process: %v", forked)
		}
		if _, err := engine.Run(ctx, 1, python.Sample(engine.Inputs(), 1, 1)); err != nil {
			return 0, err
		}
		pids = append(pids, engine.Process())
	}
	for _, pid := range pids {
		m, err := instance.ReadMemory(pid)
		if err != nil {
			return 0, err
		}
		total += m.Proportional
	}
	return total, nil
}
