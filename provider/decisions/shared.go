package decisions

import (
	"fmt"
	"slices"
	"strings"
)

// This file attributes what is decided about instances that functions share to each of these functions.

// named is how many functions a sentence names at most.
const named = 4

// Share says which functions share the instances of another, all by full name; none if there are no such functions any
// more. Later entries about it are also about each of them.
func (l *Log) Share(function string, members []string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(members) == 0 {
		delete(l.sharing, function)
		return
	}
	l.sharing[function] = slices.Sorted(slices.Values(members))
}

// Members lists the functions that share the instances of another, nil if there are none. The caller must not change it.
func (l *Log) Members(function string) []string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sharing[function]
}

// About reports whether a decision is about a function of a namespace or about instances that it shares. "" stands for
// any namespace or function.
func (d *Decision) About(namespace, function string) bool {
	is := func(name, in string) bool {
		return (namespace == "" || in == namespace) && (function == "" || name == function)
	}
	return is(d.Function, d.Namespace) || slices.ContainsFunc(d.Members, func(full string) bool {
		return is(splitName(full))
	})
}

// sharedBy is a sentence that names the functions that share the instances, "" if they are one function's own.
func (d *Decision) sharedBy() string {
	if len(d.Members) == 0 {
		return ""
	}
	var names []string
	for _, full := range d.Members[:min(len(d.Members), named)] {
		name, namespace := splitName(full)
		if namespace != d.Namespace {
			name = full
		}
		names = append(names, name)
	}
	text := " Shared by " + strings.Join(names, ", ")
	if n := len(d.Members) - len(names); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + "."
}
