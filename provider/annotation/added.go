package annotation

import (
	"maps"
	"slices"
	"strings"
)

// Key is an annotation that the room of a paper adds to those of the core. Instances do not depend on
// it: a change of its value replaces none.
type Key struct {
	// Name is the annotation, below com.openfaas.slo. or com.openfaas.infer.
	Name string
	// Set checks a value. It puts the value into a field of the core, or keeps it for the room with
	// [Stated.With]. Its error is an *[Error].
	Set func(in *Inference, value string) error
	// Agree checks a value against the other settings when all are known; nil if it agrees with any. Its
	// error is an *[Error].
	Agree func(in *Inference, value string) error
}

// added has the keys of rooms by name.
var added = map[string]Key{}

// Register adds a room's key. It panics if the name has another prefix than those of a [Key], or is
// taken. It must be called while packages are initialised.
func Register(k Key) {
	prefix := ""
	for p, keys := range knownKeys {
		if strings.HasPrefix(k.Name, p) && !slices.Contains(keys, k.Name) {
			prefix = p
		}
	}
	if _, taken := added[k.Name]; taken || prefix == "" {
		panic("annotation: the key " + k.Name + " is taken, or has a prefix whose keys are not checked")
	}
	added[k.Name] = k
}

// Added reports whether a room has registered a key.
func Added(key string) bool {
	_, is := added[key]
	return is
}

// keysBelow lists the keys with one of the prefixes of knownKeys, with those of rooms, in their order.
func keysBelow(prefix string) []string {
	all := slices.Clone(knownKeys[prefix])
	for name := range added {
		if strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Keys lists the keys that Parse reads, with those of rooms, in their order.
func Keys() []string {
	all := slices.Clone(scaleKeys)
	for prefix := range knownKeys {
		all = append(all, keysBelow(prefix)...)
	}
	slices.Sort(all)
	return all
}

// noSuchKey refuses a key that nothing reads.
func noSuchKey(key, value, prefix string) *Error {
	why := "there is no such key; it must be one of " + strings.Join(keysBelow(prefix), ", ")
	if len(added) == 0 {
		why += "; this program was built without papers: use one that has them, or leave the key out"
	}
	return &Error{Key: shorten(key), Value: value, Why: why}
}

// agree checks the values of rooms' keys against the other settings.
func (in *Inference) agree(values map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if k, is := added[key]; is && k.Agree != nil {
			if err := k.Agree(in, values[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stated has values of rooms' keys as text, so that it can be compared. The zero value has none. Only
// the room of a key reads its value.
type Stated string

// Value returns the value of a key, "" for none.
func (s Stated) Value(key string) string {
	for line := range strings.SplitSeq(string(s), "\n") {
		if value, is := strings.CutPrefix(line, key+"="); is {
			return value
		}
	}
	return ""
}

// With returns the values with another one for a key, "" for none. The value must have no line break.
func (s Stated) With(key, value string) Stated {
	lines := slices.DeleteFunc(strings.Split(string(s), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, key+"=")
	})
	if value != "" {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return Stated(strings.Join(lines, "\n"))
}
