package arrivals

import (
	"fmt"
	"time"
)

// TraceTimes opens a built-in trace by its name, or a file, and returns the times of its
// requests since the first. The trace must be a list of times or gaps, see [readTrace].
func TraceTimes(nameOrFile string) ([]time.Duration, error) {
	t, err := OpenTrace(nameOrFile)
	if err != nil {
		return nil, err
	}
	times := t.Columns[0].Times
	if times == nil {
		return nil, fmt.Errorf("trace %s has counts, not the times of single requests: its first column must be timestamp or gap", t.Name)
	}
	return times, nil
}
