package sandbox

import (
	"os"
	"strings"
)

// EnvFunction stands before the names of a function's variables in the
// environment of its main process, and keeps them from meaning anything there:
// that process has more rights than the function, so that an LD_PRELOAD of the
// function's would be its code with these rights.
const EnvFunction = "FAAS_INFER_FUNCTION_"

// ownPrefix stands before the names of variables that the provider sets.
const ownPrefix = "FAAS_INFER_"

// Wrap returns a function's variables for the environment of its main process,
// as NAME=value.
func Wrap(env map[string]string) []string {
	wrapped := make([]string, 0, len(env))
	for name, value := range env {
		wrapped = append(wrapped, EnvFunction+name+"="+value)
	}
	return wrapped
}

// FunctionEnvironment returns what the environment of this process, a
// function's main process, says the function's is, as NAME=value, every name
// once: what was wrapped, and what else there is. Of two of one name the wrapped
// one counts, unless the provider sets it.
func FunctionEnvironment() []string { return unwrap(os.Environ()) }

func unwrap(environ []string) []string {
	var others, wrapped, own []string
	for _, entry := range environ {
		if inner, ok := strings.CutPrefix(entry, EnvFunction); ok {
			wrapped = append(wrapped, inner)
		} else if strings.HasPrefix(entry, ownPrefix) {
			own = append(own, entry)
		} else {
			others = append(others, entry)
		}
	}
	last := map[string]int{}
	all := append(append(others, wrapped...), own...)
	for i, entry := range all {
		last[nameOf(entry)] = i
	}
	kept := all[:0]
	for i, entry := range all {
		if last[nameOf(entry)] == i {
			kept = append(kept, entry)
		}
	}
	return kept
}

func nameOf(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}
