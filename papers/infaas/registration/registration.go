// Package registration is what INFaaS registers of the variants of an application's models (ATC'21,
// §3.2): their profiles and accuracies, which of them are worth keeping, and the file that says so. It
// makes, measures and loads nothing. Begin with [Registration] and [Dominators].
package registration

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/variant"
)

// Dir is the directory in a bundle with the variants of its models, File the file in it that describes
// them.
const (
	Dir  = "variants"
	File = "variants.yaml"
)

// CPU is the hardware of variants that run on cores.
const CPU = "cpu"

// Registration describes the variants of an application's models on one kind of machine
// (§3.2). It is the content of variants.yaml.
type Registration struct {
	// Key identifies what the registration depends on: the models, the labelled data, the
	// machine and the versions of the tools.
	Key string `yaml:"key"`
	// Machine is the processor on which the variants were measured, Engine the version that
	// ran them.
	Machine string `yaml:"machine"`
	Engine  string `yaml:"engine"`
	// Data is the hash of the labelled data. It is empty if there is none.
	Data string `yaml:"data,omitempty"`
	// Metric says what accuracies count. It is empty if there is no labelled data.
	Metric Metric `yaml:"metric,omitempty"`
	// Variants are those that may answer, first each model itself. Dropped are those that
	// may not.
	Variants []Registered `yaml:"variants"`
	Dropped  []Dropped    `yaml:"dropped,omitempty"`
}

// Registered is a variant with its measured profile.
type Registered struct {
	// Model is the architecture, by its name in the bundle. Name is the variant's own: the
	// same for the model itself.
	Model string `yaml:"model"`
	Name  string `yaml:"name"`
	// File is the ONNX file. That of a generated variant is beside variants.yaml, otherwise
	// in the bundle.
	File      string `yaml:"file"`
	Generated bool   `yaml:"generated,omitempty"`
	// Hash is that of the file's content.
	Hash string `yaml:"hash"`
	// Accuracy is measured on the labelled data. Stated is the author's word in percent, and
	// counts if nothing was measured. Agreement is the share of rows that a generated variant
	// answers as its model does. It is no accuracy.
	Accuracy  *Share   `yaml:"accuracy,omitempty"`
	Stated    *float64 `yaml:"stated,omitempty"`
	Agreement *Share   `yaml:"agreement,omitempty"`
	// NaNRows is the number of rows for which an output was not a number.
	NaNRows int `yaml:"nan_rows,omitempty"`
	// LatencyMS is the time of one row and RPS the rate at saturation, both on one core.
	// LoadMS is the time to load the variant, MemoryMB what an instance takes.
	LatencyMS float64 `yaml:"latency_ms"`
	RPS       float64 `yaml:"rps"`
	LoadMS    float64 `yaml:"load_ms"`
	MemoryMB  float64 `yaml:"memory_mb"`
}

// Dropped is a generated variant that is not used.
type Dropped struct {
	Model  string `yaml:"model"`
	Name   string `yaml:"name"`
	Reason string `yaml:"reason"`
}

// price is what a registered variant's instance holds: one core.
const price = 1

// Percent returns the accuracy as far as it is known, otherwise 0.
func (r *Registered) Percent() float64 {
	switch {
	case r.Accuracy != nil:
		return r.Accuracy.Value
	case r.Stated != nil:
		return *r.Stated
	}
	return 0
}

// Placed returns the variant as a row of a table. It is inactive: nothing is loaded when
// it is registered.
func (r *Registered) Placed() Placed {
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	return Placed{Variant: variant.Variant{
		Model: r.Model, Name: r.Name, Hardware: CPU, Latency: ms(r.LatencyMS), Load: ms(r.LoadMS), RPS: r.RPS,
		Memory: r.MemoryMB, Accuracy: r.Percent(), Cost: price,
	}, State: variant.Inactive}
}

// Table returns the variants as rows of a table.
func (r *Registration) Table() []Placed {
	var rows []Placed
	for i := range r.Variants {
		rows = append(rows, r.Variants[i].Placed())
	}
	return rows
}

// faster is the part of the model's time that a generated variant may take. Two measurements
// of one model differ by a few percent.
const faster = 0.9

// Drop returns why a generated variant is not used, "" if it is. maxLoss is the maximum loss
// of accuracy, or of agreement, in points.
func Drop(original, generated *Registered, maxLoss float64) string {
	switch {
	case generated.NaNRows > original.NaNRows:
		return fmt.Sprintf("it answers %d rows with NaN, the model itself %d", generated.NaNRows, original.NaNRows)
	case generated.LatencyMS > faster*original.LatencyMS && generated.RPS*faster < original.RPS:
		return fmt.Sprintf("it is not a tenth faster: %.3g ms and %.4g/s, the model itself %.3g ms and %.4g/s", generated.LatencyMS, generated.RPS, original.LatencyMS, original.RPS)
	case original.Accuracy != nil && generated.Accuracy != nil:
		if loss := original.Accuracy.Value - generated.Accuracy.Value; loss > maxLoss {
			return fmt.Sprintf("it loses %.1f points of accuracy, and %g are allowed: %.1f %%, the model itself %.1f %%", loss, maxLoss, generated.Accuracy.Value, original.Accuracy.Value)
		}
	case generated.Agreement != nil && 100-generated.Agreement.Value > maxLoss:
		return fmt.Sprintf("it answers only %.1f %% of the rows as the model does, and may differ in %g %%", generated.Agreement.Value, maxLoss)
	}
	return ""
}

// DropDominated moves generated variants that another one dominates ([Dominators]) to
// Dropped. Without an accuracy of all, it compares only variants of one model, and by
// agreement.
func (r *Registration) DropDominated() {
	whole := !slices.ContainsFunc(r.Variants, func(v Registered) bool { return v.Percent() == 0 })
	groups := map[string][]int{}
	for i := range r.Variants {
		group := ""
		if !whole {
			group = r.Variants[i].Model
		}
		groups[group] = append(groups[group], i)
	}
	gone := map[int]bool{}
	for _, group := range groups {
		rows := make([]Placed, len(group))
		for k, i := range group {
			rows[k] = r.Variants[i].Placed()
			if !whole {
				rows[k].Accuracy = 100
				if a := r.Variants[i].Agreement; a != nil {
					rows[k].Accuracy = a.Value
				}
			}
		}
		for k, by := range Dominators(rows) {
			v := &r.Variants[group[k]]
			if by < 0 || !v.Generated {
				continue
			}
			gone[group[k]] = true
			r.Dropped = append(r.Dropped, Dropped{v.Model, v.Name, fmt.Sprintf("%s is at least as accurate, fast and cheap per request", rows[by].Name)})
		}
	}
	kept := r.Variants[:0:0]
	for i, v := range r.Variants {
		if !gone[i] {
			kept = append(kept, v)
		}
	}
	r.Variants = kept
	slices.SortStableFunc(r.Dropped, func(a, b Dropped) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
}

// Read reads variants.yaml. An error names the first field without a valid
// value.
func Read(text []byte) (*Registration, error) {
	var r Registration
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("variants.yaml: %w", err)
	}
	names := map[string]bool{}
	for i := range r.Variants {
		v := &r.Variants[i]
		row := v.Placed()
		if err := row.Check(); err != nil {
			return nil, fmt.Errorf("variants.yaml: variants[%d].%w", i, err)
		}
		if names[v.Name] || v.File == "" {
			return nil, fmt.Errorf("variants.yaml: variants[%d]: the name %q is there twice, or file is missing", i, v.Name)
		}
		names[v.Name] = true
	}
	if len(r.Variants) == 0 {
		return nil, errors.New("variants.yaml: variants is empty")
	}
	return &r, nil
}

// Columns is the header of a table of variants.
var Columns = []string{"model", "variant", "hardware", "state", "latency_ms", "rps", "load_ms", "memory_mb", "accuracy", "cost"}

// WriteVariants writes a table of comma-separated values with [Columns] as its header. It rounds to six
// digits.
func WriteVariants(w io.Writer, rows []Placed) error {
	out := csv.NewWriter(w)
	if err := out.Write(Columns); err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	milliseconds := func(d time.Duration) string { return number(float64(d) / float64(time.Millisecond)) }
	for i := range rows {
		p := &rows[i]
		accuracy := ""
		if p.Accuracy > 0 {
			accuracy = number(p.Accuracy)
		}
		if err := out.Write([]string{p.Model, p.Name, p.Hardware, p.State.String(), milliseconds(p.Latency), number(p.RPS),
			milliseconds(p.Load), number(p.Memory), accuracy, number(p.Cost)}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
