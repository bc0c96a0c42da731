package command

import (
	"fmt"
	"strings"

	"github.com/faas-infer/faas-infer/model/zoo"
)

// mebibytes prints a size in the unit of INFless Table 1.
func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func giga(flops int64) string { return fmt.Sprintf("%.3f", float64(flops)/1e9) }

func tableGFLOPs(a zoo.Architecture) string {
	if a.TableSize == "" {
		return ""
	}
	return fmt.Sprintf("%.2f", a.TableGFLOPs)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// dimensions prints a shape as 8×3×224×224, with ? for unknown dimensions.
func dimensions(shape []int64) string {
	if shape == nil {
		return "?"
	}
	if len(shape) == 0 {
		return "scalar"
	}
	var parts []string
	for _, d := range shape {
		if d < 0 {
			parts = append(parts, "?")
		} else {
			parts = append(parts, fmt.Sprint(d))
		}
	}
	return strings.Join(parts, "×")
}
