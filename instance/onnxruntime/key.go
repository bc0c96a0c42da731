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
)

// keyOf names the prepared form of a model file: the hash of all that it
// depends on. content is the model's own.
func keyOf(modelPath string) (key, content string, err error) {
	if content, err = model.ContentHash(modelPath); err != nil {
		return "", "", err
	}
	return keyOfContent(content), content, nil
}

func keyOfContent(content string) string {
	key := sha256.New()
	fmt.Fprintf(key, "%s\n%s\n%s\n%s\n", content, Version(), hostCPU(), preparation)
	return hex.EncodeToString(key.Sum(nil))[:32]
}

// hostCPU tells one kind of CPU from another where it matters to how weights
// are laid out: the model's name and a hash of the instruction sets.
var hostCPU = sync.OnceValue(func() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	return describeCPU(string(info))
})

func describeCPU(info string) string {
	// One processor's paragraph is enough: they do not differ in a machine on
	// which threads move freely.
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
