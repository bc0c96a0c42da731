package onnxruntime

import (
	"net/http"
	"regexp"
	"strings"
)

// InputError is the error of a run that the run's own inputs caused, as opposed to the engine or
// the machine. The model has already run on other inputs when an instance serves it.
type InputError struct {
	status int
	text   string
}

// Error says what the model could not compute.
func (e *InputError) Error() string { return e.text }

// HTTPStatus is 413 for inputs that need more memory than the engine may have, and otherwise 400.
func (e *InputError) HTTPStatus() int { return e.status }

var (
	// nodeFailed matches ONNX Runtime's text for an operator that failed.
	nodeFailed = regexp.MustCompile(`Non-zero status code returned while running (\S+) node\. ?Name: ?'([^']*)' ?Status Message: (.*)`)
	// memoryShort matches its texts for a failed allocation.
	memoryShort = regexp.MustCompile(`is smaller than requested bytes|(?i:failed to allocate)|std::bad_alloc`)
	// engineFault matches the texts of operators that fail whatever their inputs are.
	engineFault = regexp.MustCompile(`(?i:not implemented)|CUDA|CUBLAS|CUDNN`)
)

// runError makes plain words of the error of a run. The binding drops ONNX Runtime's status code, so the
// text decides whether the inputs caused it. An operator of a model that has run before fails
// because of what it is given: an index outside a table, or inputs whose lengths do not match.
func runError(err error) error {
	if err == nil {
		return nil
	}
	err = plain(err)
	text := err.Error()
	failed := nodeFailed.FindStringSubmatch(text)
	switch {
	case memoryShort.MatchString(text):
		return &InputError{http.StatusRequestEntityTooLarge,
			"the request needs more memory than the instance has; send fewer or shorter rows (" + text + ")"}
	case engineFault.MatchString(text):
		return err
	case failed != nil:
		operator := failed[1]
		if failed[2] != "" {
			operator += " " + failed[2]
		}
		return &InputError{http.StatusBadRequest,
			"the model cannot compute with these inputs; its operator " + operator + " says: " + failed[3]}
	case strings.Contains(text, "Got invalid dimensions for input") || strings.Contains(text, "Invalid rank for input"):
		return &InputError{http.StatusBadRequest,
			"the model does not take inputs of these shapes: " + strings.TrimPrefix(text, "ONNX Runtime: ")}
	}
	return err
}
