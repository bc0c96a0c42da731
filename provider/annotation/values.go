package annotation

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/provider/access"
)

func duration(key, value string, longest time.Duration, example string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > longest {
		return 0, &Error{Key: key, Value: value,
			Why: "it must be a duration above 0 and at most " + formatDuration(longest), Example: example}
	}
	return d, nil
}

// formatDuration prints a duration of whole minutes or hours without zero parts: "24h", not
// "24h0m0s".
func formatDuration(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}

func percentile(key, value string) (float64, error) {
	p, ok := ParseDecimal(value)
	if !ok || p <= 0 || p >= 100 {
		return 0, &Error{Key: key, Value: value,
			Why: "it must be a number above 0 and below 100", Example: "99"}
	}
	return p, nil
}

func integer(key, value string, least, most int, example string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return 0, &Error{Key: key, Value: value,
			Why: fmt.Sprintf("it must be a whole number from %d to %d", least, most), Example: example}
	}
	return n, nil
}

// modelPath refuses a path that leaves the bundle.
func modelPath(key, value string) (string, error) {
	clean := filepath.ToSlash(filepath.Clean(value))
	if !filepath.IsLocal(value) || clean == "." || strings.ContainsAny(value, "\\\x00\n") {
		return "", &Error{Key: key, Value: value,
			Why: "it must be the path of a file inside the bundle", Example: "model.onnx"}
	}
	return clean, nil
}

// image refuses a form that an instance could not parse. It returns the words with one
// space between them.
func image(key, value string) (string, error) {
	if _, err := model.ParseImageForm(value); err != nil {
		return "", &Error{Key: key, Value: value, Why: err.Error(), Example: model.Example}
	}
	return strings.Join(strings.Fields(value), " "), nil
}

// off reads a switch that is on unless the value says "off".
func off(key, value string) (bool, error) {
	switch value {
	case "on":
		return false, nil
	case "off":
		return true, nil
	}
	return false, &Error{Key: key, Value: value, Why: "it must be on or off", Example: "off"}
}

// weight reads a function's weight.
func weight(key, value string) (float64, error) {
	w, ok := ParseDecimal(value)
	if !ok || w < LeastWeight || w > LargestWeight {
		return 0, &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a number from %v to %v", LeastWeight, LargestWeight), Example: "2"}
	}
	return w, nil
}

// OfCallers reports whether a key says who may call a function and how often. Such keys fit every
// function, and instances do not depend on them.
func OfCallers(key string) bool { return key == InferAccess || key == InferRate }

// secretWithKeys reads the name of a secret with the keys of callers. With an error it returns the quoted value, by
// whose name there is no secret: where the value counts all the same, nobody may call.
func secretWithKeys(value string) (string, error) {
	if !IsSecret(value) {
		return strconv.Quote(value), &Error{Key: InferAccess, Value: value, Why: "it must name a secret with keys: " + SecretRule, Example: "api-keys"}
	}
	return value, nil
}

// ofCallers returns the settings in a wrong deployment that say who may call the function and how often.
func ofCallers(d types.FunctionDeployment) (in Inference) {
	for _, keys := range []*map[string]string{d.Labels, d.Annotations} { // An annotation counts before a label.
		if keys == nil {
			continue
		}
		if value, named := (*keys)[InferAccess]; named {
			in.Access, _ = secretWithKeys(value)
		}
		if rate, ok := access.ParseRate((*keys)[InferRate]); ok {
			in.Rate = rate
		}
	}
	return in
}

// NamespaceAccess returns the secret that a namespace's annotations or labels name for its functions, ""
// for none. The error, an *[Error], says that it cannot be a secret's name; where kubectl has set it, nobody may call then.
func NamespaceAccess(annotations, labels map[string]string) (string, error) {
	for _, keys := range []map[string]string{annotations, labels} {
		if value, named := keys[InferAccess]; named {
			return secretWithKeys(value)
		}
	}
	return "", nil
}

// requestRate reads a rate of requests.
func requestRate(key, value string) (access.Rate, error) {
	r, ok := access.ParseRate(value)
	if !ok {
		return r, &Error{Key: key, Value: value, Why: access.RateRule, Example: "100/s"}
	}
	return r, nil
}

// partition reads whether a model may be cut; "" is off.
func partition(key, value string) (string, error) {
	switch value {
	case "off":
		return "", nil
	case PartitionAuto, PartitionLatency:
		return value, nil
	}
	return "", &Error{Key: key, Value: value, Why: "it must be off, auto or latency", Example: PartitionAuto}
}

// shadows reads whether instances may have shadows; "" is off.
func shadows(key, value string) (string, error) {
	switch value {
	case "off":
		return "", nil
	case ShadowAuto:
		return value, nil
	case "always":
		return "", &Error{Key: key, Value: value, Why: "this value of earlier versions is no more; set it to " + ShadowAuto + ", which starts shadows where that is the cheapest way"}
	}
	return "", &Error{Key: key, Value: value, Why: "it must be off or auto", Example: ShadowAuto}
}

// device reads on what the model may run.
func device(key, value string) (string, error) {
	switch value {
	case "auto":
		return "", nil
	case DeviceCPU, DeviceCUDA:
		return value, nil
	}
	return "", &Error{Key: key, Value: value, Why: "it must be auto, cpu or cuda", Example: "auto"}
}
