package podspec

import (
	"fmt"
	"strings"
)

// SplitName takes a function's full name apart.
func SplitName(full string) (name, namespace string, err error) {
	name, namespace, ok := strings.Cut(full, ".")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, ".") {
		return "", "", fmt.Errorf("function is %q: it must be a name and a namespace, as \"mnist.openfaas-fn\"", full)
	}
	return name, namespace, nil
}
