package v1alpha1

import (
	"encoding/json"
	"maps"
	"strconv"
)

// Brought returns the annotations in the image of the function's latest revision, nil for
// none. The hash tells whether they still belong to the image in the spec.
func (f *Function) Brought() map[string]string {
	text := f.Annotations[ImageAnnotation]
	if text == "" {
		return nil
	}
	var brought map[string]string
	if json.Unmarshal([]byte(text), &brought) != nil {
		return nil // Somebody has edited it by hand; the hash then differs.
	}
	return brought
}

// Carried is the inverse of Brought: it returns the value of [ImageAnnotation].
func Carried(brought map[string]string) string {
	if len(brought) == 0 {
		return ""
	}
	// Marshalling a map of strings cannot fail; it sorts the keys.
	text, _ := json.Marshal(brought)
	return string(text)
}

// Completed returns the function with its image's annotations added to its spec. It does
// not change f and shares all other fields with it.
func (f *Function) Completed() *Function {
	brought := f.Brought()
	if len(brought) == 0 {
		return f
	}
	with := *f
	maps.Copy(brought, f.Spec.Annotations)
	with.Spec.Annotations = brought
	return &with
}

// Knows reports whether the object has been written with a revision or a later one. One without a revision, which the
// provider has not written, knows all.
func (f *Function) Knows(revision uint64) bool {
	if was := f.Status.Deployed; was != nil && was.Revision == revision {
		return true
	}
	n, err := strconv.ParseUint(f.Annotations[RevisionAnnotation], 10, 64)
	return err != nil || n >= revision
}

// At returns the function with the spec of a revision if the object still has that, and
// otherwise Completed. It shares fields with f as Completed does.
func (f *Function) At(revision uint64) *Function {
	if was := f.Status.Deployed; was != nil && was.Revision == revision {
		at := *f
		at.Spec = was.Spec.FunctionSpec
		return &at
	}
	return f.Completed()
}
