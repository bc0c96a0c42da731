package onnxruntime

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// keyOf returns the name of a model file's prepared directory: a hash of all that the
// prepared form depends on. shapes are the sizes that were given for it, nil for none: whether rows may be
// joined is tried with these, and so is whether the model runs. content is the hash of the model alone.
func keyOf(modelPath string, shapes tensor.Shapes) (key, content string, err error) {
	if content, err = model.ContentHash(modelPath); err != nil {
		return "", "", err
	}
	return keyOfContent(content, shapes), content, nil
}

func keyOfContent(content string, shapes tensor.Shapes) string {
	key := sha256.New()
	fmt.Fprintf(key, "%s\n%s\n%s\n%s\n", content, Version(), hostCPU(), preparation)
	if shapes != nil {
		fmt.Fprintf(key, "%s\n", shapes)
	}
	return hex.EncodeToString(key.Sum(nil))[:32]
}

// HostCPU identifies the kind of this host's CPU, for which models are prepared.
func HostCPU() string { return hostCPU() }

// hostCPU identifies the kind of this host's CPU, on which the layout of packed weights
// depends: the model's name and a hash of the instruction sets.
var hostCPU = sync.OnceValue(func() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	return describeCPU(string(info))
})

func describeCPU(info string) string {
	// The first processor's paragraph is enough: threads move freely between the
	// processors of a machine, so they do not differ.
	first, _, _ := strings.Cut(info, "\n\n")
	name, flags := runtime.GOARCH, ""
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			name = strings.TrimSpace(value)
		case "flags", "Features":
			flags = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s %.6x", name, sha256.Sum256([]byte(flags)))
}
