package v1alpha1

import (
	"encoding/json"
	"maps"
)

// Brought are the annotations that the image of the function's latest revision brings
// along, nil for none. Whether they are still of what the spec says, the hash tells.
func (f *Function) Brought() map[string]string {
	text := f.Annotations[ImageAnnotation]
	if text == "" {
		return nil
	}
	var brought map[string]string
	if json.Unmarshal([]byte(text), &brought) != nil {
		return nil // Written by hand; the hash is another then.
	}
	return brought
}

// Carried is the way back from Brought: the value of [ImageAnnotation].
func Carried(brought map[string]string) string {
	if len(brought) == 0 {
		return ""
	}
	// Maps of strings cannot fail to marshal; keys are in order.
	text, _ := json.Marshal(brought)
	return string(text)
}

// Completed is the function with what its image brings along in its spec. It shares
// what it does not change with f, which stays as it is.
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

// At is the function as its deployment of a revision was, as far as the object still
// has that, or else as it is now. It shares with f as Completed does.
func (f *Function) At(revision uint64) *Function {
	if was := f.Status.Deployed; was != nil && was.Revision == revision {
		at := *f
		at.Spec = was.Spec
		return &at
	}
	return f.Completed()
}
