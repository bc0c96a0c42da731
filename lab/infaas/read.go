package infaas

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// MaxRows is the maximum number of rows of a table.
const MaxRows = 1_000_000

// ReadVariants reads a table of variants: comma-separated values with the header
//
//	model,variant,hardware,state,latency_ms,rps,load_ms,memory_mb,accuracy,cost
//
// in any order. Each row is a variant on one node; two rows may have the same variant. An
// error names row and column; rows count from 1 after the header.
func ReadVariants(r io.Reader) ([]registration.Placed, error) {
	var all []registration.Placed
	err := read(r, registration.Columns, func(c *cells) error {
		p := registration.Placed{Variant: variant.Variant{
			Model: c.text("model"), Name: c.text("variant"), Hardware: c.text("hardware"),
			Latency: c.time("latency_ms"), RPS: c.number("rps"), Load: c.time("load_ms"),
			Memory: c.number("memory_mb"), Accuracy: c.optional("accuracy"), Cost: c.number("cost"),
		}}
		if c.err != nil {
			return c.err
		}
		var err error
		if p.State, err = variant.ParseState(c.text("state")); err != nil {
			return err
		}
		all = append(all, p)
		return p.Check()
	})
	if err == nil && len(all) == 0 {
		err = errors.New("there is no variant: add a row below the header")
	}
	return all, err
}

// cells is one row with its columns' names. The first error of its methods stays.
type cells struct {
	at   map[string]int
	line []string
	err  error
}

func (c *cells) text(column string) string { return strings.TrimSpace(c.line[c.at[column]]) }

func (c *cells) number(column string) float64 {
	x, err := strconv.ParseFloat(c.text(column), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		if c.err == nil {
			c.err = &variant.FieldError{Field: column, Problem: fmt.Sprintf("is %q: it must be a number", c.text(column))}
		}
		return 0
	}
	return x
}

// optional is number, or 0 for an empty cell.
func (c *cells) optional(column string) float64 {
	if c.text(column) == "" {
		return 0
	}
	return c.number(column)
}

// longest is the longest time in a table.
const longest = 1000 * time.Hour

func (c *cells) time(column string) time.Duration {
	ms := c.number(column)
	if math.Abs(ms) > milliseconds(longest) && c.err == nil {
		c.err = &variant.FieldError{Field: column, Problem: fmt.Sprintf("is %s: it must be at most %.0f", c.text(column), milliseconds(longest))}
		return 0
	}
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

// read calls each for each row of a table.
func read(r io.Reader, columns []string, each func(*cells) error) error {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord, lines.ReuseRecord = -1, true
	header, err := lines.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return fmt.Errorf("header: %w; it must be %s", err, strings.Join(columns, ","))
	}
	at, err := places(header, columns)
	if err != nil {
		return err
	}
	for row := 1; ; row++ {
		line, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("row %d: %w", row, err)
		case row > MaxRows:
			return fmt.Errorf("row %d: a table has at most %d rows", row, MaxRows)
		case len(line) < len(at):
			return fmt.Errorf("row %d, column %s: the row ends before it; give %d columns", row, columnAt(at, len(line)), len(at))
		case len(line) > len(at):
			return fmt.Errorf("row %d, column %d: there is no such column; give %d columns", row, len(at)+1, len(at))
		}
		if err := each(&cells{at: at, line: line}); err != nil {
			var field *variant.FieldError
			if errors.As(err, &field) {
				return fmt.Errorf("row %d, column %s %s", row, field.Field, field.Problem)
			}
			return fmt.Errorf("row %d: %w", row, err)
		}
	}
}

// places returns each column's place in a header.
func places(header, columns []string) (map[string]int, error) {
	at := map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := at[name]; twice || !slices.Contains(columns, name) {
			return nil, fmt.Errorf("header: column %q is unknown or there twice; the columns are %s", name, strings.Join(columns, ","))
		}
		at[name] = i
	}
	for _, name := range columns {
		if _, there := at[name]; !there {
			return nil, fmt.Errorf("header: column %s is missing; the columns are %s", name, strings.Join(columns, ","))
		}
	}
	return at, nil
}

// columnAt is the name of the column at a place.
func columnAt(at map[string]int, place int) string {
	for name, i := range at {
		if i == place {
			return name
		}
	}
	return strconv.Itoa(place + 1)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
