package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// maxSize is the maximum size of a document in bytes, a thousand times that of files
// written by hand.
const maxSize = 1 << 20

// maxErrors bounds how many errors are listed.
const maxErrors = 10

// Document is one parsed YAML file and the errors found in it.
type Document struct {
	name string
	root *yaml.Node
	errs []error
	more int
}

// ParseDocument parses a file; errors begin with name. It refuses a file that is empty, has
// no mapping at its top, or has several documents. Object refuses anchors and aliases.
func ParseDocument(name string, text []byte) (*Document, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s: %d bytes are too much: the maximum is %d", name, len(text), maxSize)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var node yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := decoder.Decode(&yaml.Node{}); err == nil {
		return nil, fmt.Errorf("%s: there are several documents: a file must have one", name)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &Document{name: name}
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		d.root = node.Content[0]
	}
	if d.root == nil || d.root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: the file must be a mapping of keys to values", name, max(1, node.Line))
	}
	return d, nil
}

// Root returns the document's outermost object.
func (d *Document) Root() *Object { return d.object(d.root, "") }

// Err returns all errors found so far, joined, or nil.
func (d *Document) Err() error {
	errs := d.errs
	if d.more > 0 {
		errs = append(errs[:len(errs):len(errs)], fmt.Errorf("%s: and %d more", d.name, d.more))
	}
	return errors.Join(errs...)
}

// fail records an error at a node, each error once.
func (d *Document) fail(at *yaml.Node, path, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if path != "" {
		what = path + ": " + what
	}
	err := fmt.Errorf("%s:%d: %s", d.name, at.Line, what)
	if slices.ContainsFunc(d.errs, func(known error) bool { return known.Error() == err.Error() }) {
		return
	}
	if len(d.errs) == maxErrors {
		d.more++
		return
	}
	d.errs = append(d.errs, err)
}
