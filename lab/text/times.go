package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/lab/accuracy"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// The batches and lengths whose predicted times are compared with measured ones. The lengths are those
// that the profiler does not measure.
var (
	timedBatches = []int{1, 2, 4, 8}
	timedLengths = []int64{24, 48, 96, 192, 384}
)

// times compares the times of batches that the profile of a model predicts by the length of its texts
// with measured ones, on one thread.
func (u *run) times(ctx context.Context, s *served) error {
	if s.name != folders[0].name {
		return nil
	}
	fmt.Fprintf(u.o.Log, "%s: times by batch and length\n", s.name)
	predicted, err := u.profile(ctx, s, 0)
	if err != nil {
		return err
	}
	if predicted.BySize == nil {
		return errors.New("the profile has no times by length")
	}
	var rows []accuracy.Row
	for _, length := range timedLengths {
		measured, err := u.profile(ctx, s, length)
		if err != nil {
			return fmt.Errorf("%d tokens: %w", length, err)
		}
		sized := predicted.Sized(predicted.BySize.ElementsOf(length))
		for _, batch := range timedBatches {
			a, ok := sized.MeanTime(batch, profiler.Share{CPU: 1000})
			b, found := measured.MeanTime(batch, profiler.Share{CPU: 1000})
			if !ok || !found {
				continue
			}
			row := accuracy.Row{Model: s.name, Batch: batch, Millicores: 1000, Predicted: rig.Microseconds(a), Measured: rig.Microseconds(b)}
			fmt.Fprintf(u.o.Log, "    %d × %d tokens: predicted %.2f ms, measured %.2f ms, off by %+.1f %%\n",
				batch, length, row.Predicted/1000, row.Measured/1000, row.SignedPercent())
			rows = append(rows, row)
		}
	}
	summary, err := accuracy.Summarise(rows)
	if err != nil {
		return err
	}
	u.r.Add("time_error_pct."+s.name, summary.All.ErrorPercent, "%", fmt.Sprintf(
		"mean of |predicted - measured|/measured over batches of %d lengths between the profiled ones, one thread, bias %+.1f %%, worst %.1f %%; aim <= 5",
		len(timedLengths), summary.All.BiasPercent, summary.Worst.ErrorPercent()))
	return nil
}

// profile measures a model on one thread: with its usual length if length is 0, otherwise with that.
func (u *run) profile(ctx context.Context, s *served, length int64) (*profiler.Profile, error) {
	out := filepath.Join(u.dir, fmt.Sprintf("profile-%d.json", length))
	var batches []string
	for _, b := range timedBatches {
		batches = append(batches, strconv.Itoa(b))
	}
	arguments := []string{"profile", "model", filepath.Join(s.dir, "model.onnx"), "--out", out, "--threads", "1", "--batch", strings.Join(batches, ",")}
	if length > 0 {
		var shapes []string
		for _, input := range []string{"input_ids", "attention_mask", "token_type_ids"} {
			shapes = append(shapes, fmt.Sprintf("%s:1x%d", input, length))
		}
		arguments = append(arguments, "--shapes", strings.Join(shapes, ","))
	}
	if _, err := say(exec.CommandContext(ctx, u.o.Program, arguments...)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var m profiler.Measured
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.Profile == nil {
		return nil, fmt.Errorf("%s has no profile", out)
	}
	return m.Profile, nil
}
