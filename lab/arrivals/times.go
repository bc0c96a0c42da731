package arrivals

import (
	"fmt"
	"time"
)

// TraceTimes opens a built-in trace by its name, or a file, and returns when its requests
// came, from the first. It must be a list of times or of gaps, as [ReadTrace] tells.
func TraceTimes(nameOrFile string) ([]time.Duration, error) {
	t, err := OpenTrace(nameOrFile)
	if err != nil {
		return nil, err
	}
	times := t.Columns[0].Times
	if times == nil {
		return nil, fmt.Errorf("trace %s has counts, from which nothing can be told of single requests: its first column must be timestamp or gap", t.Name)
	}
	return times, nil
}
