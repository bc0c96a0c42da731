package tensor

import (
	"fmt"
	"strings"
)

// Describe lists tensors with their types and shapes, "?" for a free dimension: "x float32[?,10], y …".
func Describe(infos []Info) string {
	var all []string
	for _, i := range infos {
		all = append(all, fmt.Sprintf("%s %s%v", i.Name, i.Type, i.Shape))
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "-1", "?")
}
