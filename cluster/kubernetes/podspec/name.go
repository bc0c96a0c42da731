package podspec

import (
	"fmt"
	"strings"
)

// SplitName splits a function's full name, "mnist.openfaas-fn", at the dot.
func SplitName(full string) (name, namespace string, err error) {
	name, namespace, ok := strings.Cut(full, ".")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, ".") {
		return "", "", fmt.Errorf("function is %q: it must be a name and a namespace, such as \"mnist.openfaas-fn\"", full)
	}
	return name, namespace, nil
}
