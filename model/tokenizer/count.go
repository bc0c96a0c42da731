package tokenizer

// Added is the number of tokens that the template adds to a text, or to a pair.
func (t *Tokenizer) Added(pair bool) int { return t.template.added(pair) }

// Count returns the number of tokens of a text, without those that the template adds, or max if it has more. It allocates
// nothing for most texts. The error is that of [Tokenizer.Encode].
func (t *Tokenizer) Count(text string, max int) (int, error) {
	if max <= 0 {
		return 0, nil
	}
	r, _ := t.rooms.Get().(*room)
	if r == nil {
		r = &room{}
	}
	if len(text) <= maxRoom {
		defer t.rooms.Put(r)
	}
	ids, err := t.sequence(r, r.ids[0][:0], text, max)
	if err != nil {
		return 0, err
	}
	r.ids[0] = ids
	return min(len(ids), max), nil
}
