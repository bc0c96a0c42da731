package fleet

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Object is a mapping of keys to values. It records errors in its document.
type Object struct {
	document *Document
	node     *yaml.Node
	path     string
	values   map[string]*yaml.Node
	keys     []*yaml.Node
	known    []string
}

func (d *Document) object(node *yaml.Node, path string) *Object {
	o := &Object{document: d, node: node, path: path, values: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			d.fail(key, path, "a key must be a word")
		case o.values[key.Value] != nil:
			d.fail(key, o.at(key.Value), "the key occurs twice")
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			d.fail(key, o.at(key.Value), "anchors and aliases are not supported: write the value out")
			o.values[key.Value] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: key.Line}
		default:
			o.values[key.Value] = value
			o.keys = append(o.keys, key)
		}
	}
	return o
}

func (o *Object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// take returns a key's value, nil if it is absent or null. The key becomes known to Done.
func (o *Object) take(key string) *yaml.Node {
	if !slices.Contains(o.known, key) {
		o.known = append(o.known, key)
	}
	v := o.values[key]
	if v != nil && v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
		return nil
	}
	return v
}

// Has reports whether a key has a value.
func (o *Object) Has(key string) bool { return o.take(key) != nil }

// Need records an error for every missing key. It reports whether all keys have values.
func (o *Object) Need(keys ...string) bool {
	all := true
	for _, key := range keys {
		if !o.Has(key) {
			o.document.fail(o.node, o.at(key), "it is missing")
			all = false
		}
	}
	return all
}

// Fail records an error about a key's value, or about the object if key is "".
func (o *Object) Fail(key, format string, args ...any) {
	node, path := o.node, o.path
	if key != "" {
		path = o.at(key)
		if v := o.values[key]; v != nil {
			node = v
		}
	}
	o.document.fail(node, path, format, args...)
}

// Where returns the file and line of a key's value, or of the object if the key is absent.
// It is for errors that are found later.
func (o *Object) Where(key string) string {
	line := o.node.Line
	if v := o.values[key]; v != nil {
		line = v.Line
	}
	return fmt.Sprintf("%s:%d", o.document.name, line)
}

// Done records an error for every key that no method has asked for.
func (o *Object) Done() {
	for _, key := range o.keys {
		if !slices.Contains(o.known, key.Value) {
			o.document.fail(key, o.at(key.Value), "unknown key: the known keys are %s", strings.Join(o.known, ", "))
		}
	}
}

// Object returns the object under a key. ok is false if there is none.
func (o *Object) Object(key string) (*Object, bool) {
	v := o.take(key)
	if v == nil {
		return nil, false
	}
	if v.Kind != yaml.MappingNode {
		o.Fail(key, "it must be a mapping of keys to values")
		return nil, false
	}
	return o.document.object(v, o.at(key)), true
}

// Objects lists the objects of the list under a key.
func (o *Object) Objects(key string) []*Object {
	v := o.take(key)
	if v == nil {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		o.Fail(key, "it must be a list: each item begins with “- ”")
		return nil
	}
	var all []*Object
	for i, item := range v.Content {
		path := fmt.Sprintf("%s[%d]", o.at(key), i)
		if item.Kind != yaml.MappingNode || item.Anchor != "" {
			o.document.fail(item, path, "it must be a mapping of keys to values, without an anchor")
			continue
		}
		all = append(all, o.document.object(item, path))
	}
	return all
}

// IsObject reports whether the value under a key is a mapping.
func (o *Object) IsObject(key string) bool {
	v := o.take(key)
	return v != nil && v.Kind == yaml.MappingNode
}

// scalars returns a key's value as a list of one, or the list under the key.
func (o *Object) scalars(key string) []*yaml.Node {
	v := o.take(key)
	if v == nil {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		return []*yaml.Node{v}
	}
	if len(v.Content) == 0 {
		o.Fail(key, "the list is empty")
	}
	return v.Content
}
