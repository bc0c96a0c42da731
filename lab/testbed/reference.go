package testbed

import (
	"bytes"
	_ "embed" // the figures
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
)

// TestbedConfig is a measured config of the testbed: ⟨b, c, g⟩ with c in millicores, 1000
// per CPU thread, and g in % of the GPU's SMs, 0 without GPU.
type TestbedConfig struct {
	Batch, Millicores, GPU int
	// Milliseconds is the time to serve a batch, with some queueing. It is no time.Duration, to keep
	// it apart from times of this machine.
	Milliseconds float64
}

// ReferenceTestbed has the profiles of a testbed's models.
type ReferenceTestbed struct {
	// models has the times in ms of each model's shares, by batch, ascending.
	models map[string]map[testbedShare][]timed
}

type testbedShare struct{ millicores, gpu int }

type timed struct {
	batch int
	ms    float64
}

//go:embed infless_2080ti.csv
var models []byte

// INFlessTestbed returns the published testbed, without the batches that never filled in
// the experiment.
var INFlessTestbed = sync.OnceValue(func() *ReferenceTestbed {
	t, err := ParseTestbed(models)
	if err != nil {
		panic(err) // The file is embedded, and a test reads it.
	}
	return t
})

var columns = []string{"model", "cpu_threads", "gpu_sm_pct", "batch", "latency_ms"}

// ParseTestbed reads a profile in the published form, a CSV file. Its header is
// model,cpu_threads,gpu_sm_pct,batch,latency_ms. Lines that begin with # are comments. An
// error names the line.
func ParseTestbed(text []byte) (*ReferenceTestbed, error) {
	t := &ReferenceTestbed{models: map[string]map[testbedShare][]timed{}}
	err := parse(text, columns, func(cells []string) error {
		var whole [3]int
		for i, cell := range cells[1:4] {
			n, err := strconv.Atoi(cell)
			if err != nil || n < 0 || n == 0 && i != 1 || n > 1<<16 || i == 1 && n > 100 {
				return fmt.Errorf("%s is %q: it must be a whole number from %s", columns[1+i], cell, [...]string{"1 to 65536", "0 to 100", "1 to 65536"}[i])
			}
			whole[i] = n
		}
		ms, err := strconv.ParseFloat(cells[4], 64)
		if err != nil || !(ms > 0 && ms < 1e9) {
			return fmt.Errorf("latency_ms is %q: it must be a number above 0 and below 1e9", cells[4])
		}
		return t.add(cells[0], testbedShare{1000 * whole[0], whole[1]}, timed{whole[2], ms})
	})
	if err != nil {
		return nil, fmt.Errorf("testbed profile: %w", err)
	}
	return t, nil
}

func (t *ReferenceTestbed) add(model string, s testbedShare, at timed) error {
	if model == "" {
		return errors.New("model is missing")
	}
	if t.models[model] == nil {
		t.models[model] = map[testbedShare][]timed{}
	}
	row := t.models[model][s]
	i, found := slices.BinarySearchFunc(row, at.batch, func(a timed, batch int) int { return a.batch - batch })
	if found {
		return fmt.Errorf("%s at batch %d occurs twice", model, at.batch)
	}
	t.models[model][s] = slices.Insert(row, i, at)
	return nil
}

// parse calls each for the lines of a CSV file with the given header.
func parse(text []byte, header []string, each func(cells []string) error) error {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.FieldsPerRecord = '#', len(header)
	lines, err := r.ReadAll()
	if err != nil {
		return err
	}
	if len(lines) == 0 || !slices.Equal(lines[0], header) {
		return fmt.Errorf("the first line must be the header %q", header)
	}
	for _, cells := range lines[1:] {
		if err := each(cells); err != nil {
			return fmt.Errorf("line of %q: %w", cells, err)
		}
	}
	return nil
}

// Models lists the models by name.
func (t *ReferenceTestbed) Models() []string { return slices.Sorted(maps.Keys(t.models)) }

// Configs lists the measured configs of a model, by GPU share, CPU and batch.
func (t *ReferenceTestbed) Configs(model string) []TestbedConfig {
	var all []TestbedConfig
	for s, row := range t.models[model] {
		for _, at := range row {
			all = append(all, TestbedConfig{at.batch, s.millicores, s.gpu, at.ms})
		}
	}
	slices.SortFunc(all, func(a, b TestbedConfig) int {
		return slices.Compare([]int{a.GPU, a.Millicores, a.Batch}, []int{b.GPU, b.Millicores, b.Batch})
	})
	return all
}
