package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// maxSize bounds a document, in bytes: what people write by hand is a thousandth
// of it.
const maxSize = 1 << 20

// maxErrors bounds how many errors are listed.
const maxErrors = 10

// Document is one file that is being read.
type Document struct {
	name string
	root *yaml.Node
	errs []error
	more int
}

// ParseDocument reads the syntax of a file; name is what errors call it. A file without
// a mapping, with several documents, or with anchors and aliases is refused.
func ParseDocument(name string, text []byte) (*Document, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s: %d bytes are too much: at most %d", name, len(text), maxSize)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var node yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := decoder.Decode(&yaml.Node{}); err == nil {
		return nil, fmt.Errorf("%s: there are several documents: only one can be in a file", name)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &Document{name: name}
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		d.root = node.Content[0]
	}
	if d.root == nil || d.root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: this is no mapping of keys to values", name, max(1, node.Line))
	}
	return d, nil
}

// Root is the document's outermost object.
func (d *Document) Root() *Object { return d.object(d.root, "") }

// Err is all that is wrong, or nil.
func (d *Document) Err() error {
	errs := d.errs
	if d.more > 0 {
		errs = append(errs[:len(errs):len(errs)], fmt.Errorf("%s: and %d more", d.name, d.more))
	}
	return errors.Join(errs...)
}

// fail records an error at a node, unless it is known.
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
