package database

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Format is the version of the file that this program writes. Increase it when the
// meaning of a line changes.
//
// A file consists of independent lines of JSON:
//
//	{"crc32c":"0a1b2c3d","format":1,"header":{…}}
//	{"crc32c":"4e5f6071","format":1,"provenance":{…}}
//	{"crc32c":"8293a4b5","format":1,"row":{…}}
//
// The sum is the CRC-32C (Castagnoli) of the line's bytes from "format" with its
// quotation mark to the last brace, without the line end. The lines of every format
// begin in this way, so an older program can tell a newer file from a damaged one.
// This beginning cannot occur within a line, because JSON writes a quotation mark in
// a string as \". So the reader finds the next line even if a line end was lost.
const Format = 1

// Parts of a line.
const (
	begin   = `{"crc32c":"`
	sumSize = 2 * crc32.Size
	between = `",`
	// overhead is the number of bytes before the summed part.
	overhead = len(begin) + sumSize + len(between)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// line is one line without its sum.
type line struct {
	Format     int         `json:"format"`
	Header     *header     `json:"header,omitempty"`
	Provenance *Provenance `json:"provenance,omitempty"`
	Row        *rowText    `json:"row,omitempty"`
}

// header is the first line of a file.
type header struct {
	Of string `json:"of"`
}

// of is the header's description of the file.
const of = "faas-infer operator profiles, times in µs"

// Provenance is the origin of the rows of an exported file. A database keeps the
// provenance of imported files.
type Provenance struct {
	// ExportedAt is the time of the export. Commit is the build that exported,
	// Machine the machine where it ran.
	ExportedAt time.Time `json:"exportedAt"`
	Commit     string    `json:"commit,omitempty"`
	Machine    string    `json:"machine,omitempty"`
	// Note is the exporting user's remark.
	Note string `json:"note,omitempty"`
}

// rowText is the form of a row in a file.
type rowText struct {
	Operator   string    `json:"operator"`
	Family     string    `json:"family"`
	FLOPs      int64     `json:"flops"`
	In         int64     `json:"in_bytes"`
	Out        int64     `json:"out_bytes"`
	Weights    int64     `json:"weight_bytes"`
	Batch      int       `json:"batch"`
	Millicores int       `json:"millicores"`
	GPU        int       `json:"gpu"`
	Cold       bool      `json:"cold"`
	Median     float64   `json:"median_us"`
	P95        float64   `json:"p95_us"`
	CPU        float64   `json:"cpu_us"`
	Spread     float64   `json:"spread"`
	Runs       int       `json:"runs"`
	Noisy      bool      `json:"noisy"`
	Engine     string    `json:"engine"`
	Machine    string    `json:"machine"`
	MeasuredAt time.Time `json:"measuredAt"`
}

func (t *rowText) row() Row {
	return Row{
		Operator: t.Operator, Family: t.Family,
		Features: operator.Features{FLOPs: t.FLOPs, InBytes: t.In, OutBytes: t.Out, WeightBytes: t.Weights},
		Batch:    t.Batch, Millicores: t.Millicores, GPU: t.GPU, Cold: t.Cold,
		Median: t.Median, P95: t.P95, CPU: t.CPU, Spread: t.Spread, Runs: t.Runs, Noisy: t.Noisy,
		Engine: t.Engine, Machine: t.Machine, MeasuredAt: t.MeasuredAt,
	}
}

// Encode returns the line of one row, with the line end. It returns the error of
// [Row.Validate] for an invalid row.
func Encode(r Row) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return encode(line{Row: &rowText{
		Operator: r.Operator, Family: r.Family,
		FLOPs: r.Features.FLOPs, In: r.Features.InBytes, Out: r.Features.OutBytes, Weights: r.Features.WeightBytes,
		Batch: r.Batch, Millicores: r.Millicores, GPU: r.GPU, Cold: r.Cold,
		Median: r.Median, P95: r.P95, CPU: r.CPU, Spread: r.Spread, Runs: r.Runs, Noisy: r.Noisy,
		Engine: r.Engine, Machine: r.Machine, MeasuredAt: r.MeasuredAt.UTC(),
	}})
}

// Header returns the first line of a file, with the line end.
func Header() []byte {
	text, err := encode(line{Header: &header{Of: of}})
	if err != nil {
		panic(err) // The header is a constant.
	}
	return text
}

func encode(l line) ([]byte, error) {
	l.Format = Format
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // Keys contain < and >.
	if err := e.Encode(l); err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	summed := bytes.TrimSuffix(b.Bytes()[1:], []byte{'\n'})
	text := make([]byte, 0, overhead+len(summed)+1)
	text = append(text, begin...)
	text = hex.AppendEncode(text, sum(summed))
	text = append(text, between...)
	text = append(text, summed...)
	return append(text, '\n'), nil
}

func sum(summed []byte) []byte {
	s := crc32.Checksum(summed, castagnoli)
	return []byte{byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}

var (
	errIncomplete = errors.New("it is incomplete")
	errSum        = errors.New("its checksum is wrong")
)

// NewerError is the error for a file that a newer version of this program wrote.
type NewerError struct {
	// Format is the file's format.
	Format int
}

// Error says what to do.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the operator profiles have format %d, from a newer faas-infer; this version reads formats up to %d; use the newer version or another file", e.Format, Format)
}

// decode reads one line without its line end.
func decode(text []byte) (line, error) {
	var l line
	if len(text) <= overhead || !bytes.HasPrefix(text, []byte(begin)) || string(text[overhead-len(between):overhead]) != between {
		return l, errIncomplete
	}
	summed := text[overhead:]
	if want := text[len(begin) : len(begin)+sumSize]; !bytes.Equal(hex.AppendEncode(nil, sum(summed)), want) {
		return l, errSum
	}
	object := append(append(make([]byte, 0, len(summed)+1), '{'), summed...)
	if err := checkFormat(object); err != nil {
		return l, err
	}
	if err := json.Unmarshal(object, &l); err != nil {
		return l, err
	}
	if l.Row != nil {
		return l, l.Row.row().Validate()
	}
	return l, nil
}

// checkFormat returns an error unless the object has [Format]. Call it before decoding
// the rest, which differs between formats.
func checkFormat(object []byte) error {
	var version struct {
		Format float64 `json:"format"`
	}
	if bytes.HasPrefix(object, thisFormat) {
		return nil
	}
	if err := json.Unmarshal(object, &version); err != nil {
		return err
	}
	switch f := version.Format; {
	case f > Format:
		return &NewerError{Format: int(min(f, math.MaxInt32))}
	case f != Format:
		return fmt.Errorf("it has format %v, which does not exist", f)
	}
	return nil
}

// thisFormat begins the summed part of a line in this format.
var thisFormat = fmt.Appendf(nil, `{"format":%d,`, Format)
