package tokenizer

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// slot is a part of a template: a sequence of the input, or special tokens.
type slot struct {
	// sequence is 0 or 1, or noToken for special tokens.
	sequence int
	ids      []int32
	typeID   int32
}

// template says how one sequence, or two, become the input of the model.
type template struct{ single, pair []slot }

// plain is the template without special tokens.
var plain = template{[]slot{{sequence: 0}}, []slot{{sequence: 0}, {sequence: 1, typeID: 1}}}

// parseTemplate reads the field post_processor, or one of a sequence; without one, nothing is added.
func parseTemplate(path string, raw json.RawMessage) (t template, err error) {
	if raw == nil {
		return plain, nil
	}
	o, kind, err := component(path, raw)
	if err != nil {
		return plain, err
	}
	switch kind {
	case "TemplateProcessing":
		t = parseTemplates(o)
	case "BertProcessing":
		t = parseClassic(o, false)
	case "RobertaProcessing":
		o.ignore("trim_offsets", "add_prefix_space")
		t = parseClassic(o, true)
	case "ByteLevel":
		t = plain
		o.ignore("add_prefix_space", "trim_offsets", "use_regex")
	case "Sequence":
		t = plain
		for _, part := range components(o, "processors", parseTemplate) {
			switch {
			case reflect.DeepEqual(part, plain):
			case reflect.DeepEqual(t, plain):
				t = part
			default:
				o.fail("processors", "more than one of them adds special tokens or types, which is not supported")
			}
		}
	default:
		o.fail("type", "the post-processor %.100q is not supported", kind)
	}
	return t, o.close()
}

// added returns how many special tokens a template adds.
func (t template) added(pair bool) int {
	n := 0
	for _, s := range t.of(pair) {
		n += len(s.ids)
	}
	return n
}

func (t template) of(pair bool) []slot {
	if pair {
		return t.pair
	}
	return t.single
}

// parseClassic reads BertProcessing and RobertaProcessing: cls A sep, and for two sequences sep B or, in
// RoBERTa, sep sep B sep with one type for all.
func parseClassic(o *object, roberta bool) template {
	token := func(name string) []int32 {
		var pair []json.RawMessage
		var word string
		var id int32
		o.required(name, &pair)
		if len(pair) != 2 || json.Unmarshal(pair[0], &word) != nil || json.Unmarshal(pair[1], &id) != nil || id < 0 {
			o.fail(name, "it is not a token and its id")
		}
		return []int32{id}
	}
	special := func(ids []int32, typeID int32) slot { return slot{noToken, ids, typeID} }
	cls, sep := token("cls"), token("sep")
	t := template{single: []slot{special(cls, 0), {sequence: 0}, special(sep, 0)}}
	if roberta {
		t.pair = append(t.single[:3:3], special(sep, 0), slot{sequence: 1}, special(sep, 0))
	} else {
		t.pair = append(t.single[:3:3], slot{sequence: 1, typeID: 1}, special(sep, 1))
	}
	return t
}

// parseTemplates reads TemplateProcessing.
func parseTemplates(o *object) template {
	var raw map[string]json.RawMessage
	o.required("special_tokens", &raw)
	tokens := map[string][]int32{}
	for name, fields := range raw {
		part, err := open(fmt.Sprintf("%s.special_tokens.%.100s", o.path, name), fields)
		if err != nil {
			o.fail("special_tokens", "%w", err)
			return plain
		}
		var id string
		var ids []int32
		part.required("id", &id)
		part.required("ids", &ids)
		part.ignore("tokens")
		if err := part.close(); err != nil {
			o.fail("special_tokens", "%w", err)
			return plain
		}
		tokens[name] = ids
	}
	t := template{single: parseSlots(o, "single", tokens), pair: parseSlots(o, "pair", tokens)}
	if *o.err == nil && (times(t.pair, 0) != 1 || times(t.pair, 1) != 1) {
		o.fail("pair", "it must have each of the sequences A and B once")
	}
	if *o.err == nil && (times(t.single, 0) != 1 || times(t.single, 1) != 0) {
		o.fail("single", "it must have the sequence A once, and not B, which a single text lacks")
	}
	return t
}

// times returns how often a template has a sequence.
func times(slots []slot, sequence int) (n int) {
	for _, s := range slots {
		if s.sequence == sequence {
			n++
		}
	}
	return n
}

// parseSlots reads one template of TemplateProcessing.
func parseSlots(o *object, name string, tokens map[string][]int32) []slot {
	var parts []map[string]struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
	o.required(name, &parts)
	var slots []slot
	for i, part := range parts {
		if len(part) != 1 {
			o.fail(name, "part %d is not one token or sequence", i)
		}
		for kind, p := range part {
			s := slot{noToken, tokens[p.ID], p.TypeID}
			sequence := map[string]int{"A": 0, "B": 1}
			switch _, known := tokens[p.ID]; {
			case kind == "SpecialToken" && known:
			case kind == "Sequence" && (p.ID == "A" || p.ID == "B"):
				s.sequence, s.ids = sequence[p.ID], nil
			default:
				o.fail(name, "part %d is the %.40s %.100q, which is unknown", i, kind, p.ID)
			}
			if p.TypeID < 0 {
				o.fail(name, "part %d has the type %d", i, p.TypeID)
			}
			slots = append(slots, s)
		}
	}
	return slots
}
