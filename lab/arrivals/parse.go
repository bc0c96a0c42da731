package arrivals

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// steps are the names of the first column of counts, and the time that a line stands for;
// 0 if the name does not say.
var steps = map[string]time.Duration{"minute": time.Minute, "second": time.Second, "hour": time.Hour, "step": 0}

// timestamps are the names of the first column of a list of requests' times.
var timestamps = []string{"timestamp", "time", "arrived"}

// gaps are the names of the first column of a list of gaps between requests.
var gaps = []string{"gap", "gaps", "interarrival", "inter-arrival"}

// maxCount bounds a cell to keep sums exact.
const maxCount = 1e12

// lines yields the lines with their numbers, without empty lines and comments.
func lines(text string) func(yield func(number int, line string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
			number++
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !yield(number, line) {
				return
			}
		}
	}
}

// cells splits a line. Quotes around a cell are dropped.
func cells(line string) []string {
	all := strings.Split(line, ",")
	for i, c := range all {
		all[i] = strings.Trim(strings.TrimSpace(c), `"`)
	}
	return all
}

func (t *Trace) parse(text string) error {
	var rows *rows
	for number, line := range lines(text) {
		var err error
		if rows == nil {
			rows, err = t.header(cells(line))
		} else {
			err = rows.add(line)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if rows == nil {
		return errors.New("the file is empty")
	}
	return rows.done()
}

// header reads the first line.
func (t *Trace) header(names []string) (*rows, error) {
	first := strings.ToLower(names[0])
	if _, err := strconv.ParseFloat(first, 64); err == nil {
		return nil, fmt.Errorf("%q is a number: the first line must name the columns, such as minute,NAME", names[0])
	}
	if slices.Contains(timestamps, first) {
		t.Step = time.Minute
		t.Columns = []Column{{Name: "requests"}}
		return &rows{trace: t, width: len(names), times: true}, nil
	}
	if slices.Contains(gaps, first) {
		t.Step = time.Minute
		t.Columns = []Column{{Name: "requests", Times: []time.Duration{0}, Counts: []float64{1}}}
		return &rows{trace: t, width: len(names), gaps: true}, nil
	}
	step, ok := steps[first]
	if !ok {
		return nil, fmt.Errorf("the first column is %q: it must be minute, second, hour or step, or timestamp or gap in a list of requests", names[0])
	}
	if len(names) < 2 {
		return nil, errors.New("there is no column besides the first: add one for each function")
	}
	t.Step = step
	for _, name := range names[1:] {
		name = plain(name)
		if name == "" {
			return nil, errors.New("a column has no name")
		}
		if slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name == name }) {
			return nil, fmt.Errorf("two columns are called %s", name)
		}
		t.Columns = append(t.Columns, Column{Name: name})
	}
	return &rows{trace: t, width: len(names)}, nil
}

// plain turns a column's name into one that may be part of a result's name.
func plain(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name), "-")
}

// rows are the lines below the header.
type rows struct {
	trace *Trace
	width int
	last  int // the number of the previous line
	some  bool

	// times or gaps is set if each line is a request.
	times, gaps bool
	begin       time.Time
}

func (r *rows) add(line string) error {
	row := cells(line)
	if len(row) != r.width {
		return fmt.Errorf("%d cells: the header has %d", len(row), r.width)
	}
	switch {
	case r.times:
		return r.time(row[0])
	case r.gaps:
		return r.gap(row[0])
	}
	number, err := strconv.Atoi(row[0])
	if err != nil || number < 0 {
		return fmt.Errorf("%q is not the number of a line: it must be a whole number from 0", row[0])
	}
	if r.some && number != r.last+1 {
		return fmt.Errorf("%d follows %d: lines must have no gap and no repetition; write 0 if no request came", number, r.last)
	}
	r.last, r.some = number, true
	for i, cell := range row[1:] {
		n, err := strconv.ParseFloat(cell, 64)
		if err != nil || !(n >= 0 && n <= maxCount) {
			return fmt.Errorf("column %s: %q is not a number of requests: it must be from 0 to %g", r.trace.Columns[i].Name, cell, float64(maxCount))
		}
		r.trace.Columns[i].Counts = append(r.trace.Columns[i].Counts, n)
	}
	return nil
}

// layouts are the forms of a timestamp, besides seconds.
var layouts = []string{"2006-01-02 15:04:05", time.RFC3339, "2006-01-02T15:04:05"}

func timestamp(cell string) (time.Time, bool) {
	if s, err := strconv.ParseFloat(cell, 64); err == nil {
		const maxSeconds = 1 << 33 // The year 2242; the nanoseconds fit into 64 bits.
		return time.Unix(0, int64(s*1e9)), s >= 0 && s <= maxSeconds
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, cell); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// longest bounds a list of requests because its counts are held in memory.
const longest = 366 * 24 * time.Hour

func (r *rows) time(cell string) error {
	at, ok := timestamp(cell)
	if !ok {
		return fmt.Errorf("%q is not a time: write 2023-11-16 18:15:46.68, or seconds from 0", cell)
	}
	c := &r.trace.Columns[0]
	if len(c.Times) == 0 {
		r.begin = at
	}
	since := at.Sub(r.begin)
	if n := len(c.Times); n > 0 && since < c.Times[n-1] {
		return fmt.Errorf("%s is before the time of the line above: sort the file by time", cell)
	}
	return r.request(cell, since)
}

// gap adds a request that many seconds after the previous one.
func (r *rows) gap(cell string) error {
	gap, err := strconv.ParseFloat(cell, 64)
	if err != nil || !(gap >= 0 && gap <= longest.Seconds()) {
		return fmt.Errorf("%q is not a gap: it must be in seconds, from 0 to %g", cell, longest.Seconds())
	}
	all := r.trace.Columns[0].Times
	return r.request(cell, all[len(all)-1]+time.Duration(gap*float64(time.Second)))
}

// request adds a request that came since after the first.
func (r *rows) request(cell string, since time.Duration) error {
	if since > longest {
		return fmt.Errorf("%s is more than %v after the first request", cell, longest)
	}
	c := &r.trace.Columns[0]
	c.Times = append(c.Times, since)
	minute := int(since / time.Minute)
	for len(c.Counts) <= minute {
		c.Counts = append(c.Counts, 0)
	}
	c.Counts[minute]++
	return nil
}

func (r *rows) done() error {
	if len(r.trace.Columns[0].Counts) == 0 {
		return errors.New("there are no lines below the header")
	}
	return nil
}
