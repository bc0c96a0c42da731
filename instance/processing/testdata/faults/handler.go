// Package function commits the fault that its input names.
package function

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Inputs name the fault, Outputs have a dynamic dimension.
var (
	Inputs  = []string{"do int32"}
	Outputs = []string{"species float32[?]", "done bool"}
)

// Pre does what the first row says.
func Pre(rows int, inputs map[string]any) (map[string]any, error) {
	do := inputs["do"].([]int32)
	switch do[0] {
	case 1:
		return nil, errors.New("I will not")
	case 2:
		_ = do[rows+7]
	case 3:
		fmt.Println("good bye")
		os.Exit(3)
	case 4:
		time.Sleep(time.Hour)
	case 5:
		return map[string]any{"lengths": make([]float64, 4*rows)}, nil
	case 6:
		return map[string]any{"lengths": make([]float32, 4*rows-1)}, nil
	case 7:
		return map[string]any{"lengths": "four"}, nil
	case 8:
		return map[string]any{"widths": make([]float32, 4*rows)}, nil
	case 9:
		go func() { panic("out of the blue") }()
		select {}
	case 10:
		os.NewFile(3, "instance").WriteString(strings.Repeat("nonsense", 3))
		time.Sleep(time.Hour)
	}
	lengths := make([]float32, 4*rows)
	for i := range lengths {
		lengths[i] = float32(do[i/4])
	}
	return map[string]any{"lengths": lengths}, nil
}

// Post says that it is done.
func Post(rows int, outputs map[string]any) (map[string]any, error) {
	outputs["done"] = make([]bool, rows)
	outputs["done"].([]bool)[0] = true
	return outputs, nil
}
