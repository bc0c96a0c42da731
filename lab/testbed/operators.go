package testbed

import (
	"cmp"
	_ "embed" // the figures
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// OperatorTime is the time of all calls of one operator in one execution of a model at
// batch 1, in TensorFlow on INFless' testbed (Fig. 7).
type OperatorTime struct {
	// Operator is TensorFlow's name, in part abbreviated.
	Operator string
	Calls    int
	// Microseconds is the time of all calls together.
	Microseconds float64
}

//go:embed infless_operators.csv
var operators []byte

type testbedOn struct{ model, device string }

var operatorTimes = sync.OnceValue(func() map[testbedOn][]OperatorTime {
	all, err := parseOperators(operators)
	if err != nil {
		panic(err) // The file is embedded, and a test reads it.
	}
	return all
})

// Operators lists a model's operators on a device, "cpu" or "gpu", the longest first. It
// returns nil for other models than the published ones: lstm-2365, and resnet-50 on the
// CPU.
func Operators(model, device string) []OperatorTime {
	return slices.Clone(operatorTimes()[testbedOn{model, device}])
}

func parseOperators(text []byte) (map[testbedOn][]OperatorTime, error) {
	all := map[testbedOn][]OperatorTime{}
	err := parse(text, []string{"model", "device", "op", "calls", "total_us"}, func(cells []string) error {
		calls, err := strconv.Atoi(cells[3])
		if err != nil || calls < 1 {
			return fmt.Errorf("calls is %q: it must be a whole number, at least 1", cells[3])
		}
		us, err := strconv.ParseFloat(cells[4], 64)
		if err != nil || !(us > 0 && us < 1e12) {
			return fmt.Errorf("total_us is %q: it must be a number above 0 and below 1e12", cells[4])
		}
		at := testbedOn{cells[0], cells[1]}
		all[at] = append(all[at], OperatorTime{cells[2], calls, us})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("testbed operators: %w", err)
	}
	for _, row := range all {
		slices.SortStableFunc(row, func(a, b OperatorTime) int { return cmp.Compare(b.Microseconds, a.Microseconds) })
	}
	return all, nil
}
