package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/model/cut"
)

// CuttingSuffix ends the name of a file that holds a [Cutting].
const CuttingSuffix = ".plan.json"

// Cutting is a model and the plan by which it is cut. The file may have more keys: they are
// not for instances.
type Cutting struct {
	Plan cut.Plan `json:"plan"`
	// Source is the model's file.
	Source string `json:"source"`
}

// maxCutting bounds the file of a Cutting in bytes.
const maxCutting = 16 << 20

// IsCutting reports whether a model's file is one of a [Cutting], by its name.
func IsCutting(file string) bool { return strings.HasSuffix(file, CuttingSuffix) }

// ReadCutting reads a file. A source that is no absolute path is beside the file.
func ReadCutting(file string) (*Cutting, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the cut model: %w", err)
	}
	defer f.Close()
	c, err := readCutting(f)
	if err != nil {
		return nil, fmt.Errorf("the cut model %s: %w", file, err)
	}
	if !filepath.IsAbs(c.Source) {
		c.Source = filepath.Join(filepath.Dir(file), c.Source)
	}
	return c, nil
}

func readCutting(r io.Reader) (*Cutting, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxCutting+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxCutting {
		return nil, fmt.Errorf("it is larger than %d bytes", maxCutting)
	}
	var read struct {
		Plan   json.RawMessage `json:"plan"`
		Source string          `json:"source"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("it is not JSON with a plan and a source: %w", err)
	}
	switch {
	case len(read.Plan) == 0:
		return nil, fmt.Errorf("plan is missing: it says which member computes what")
	case read.Source == "":
		return nil, fmt.Errorf("source is missing: it names the model's file")
	}
	plan, err := cut.ReadPlan(bytes.NewReader(read.Plan))
	if err != nil {
		return nil, err
	}
	return &Cutting{Plan: *plan, Source: read.Source}, nil
}
