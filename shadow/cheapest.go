package shadow

// Cheapest decides whether a body with a shadow or a twin has the cheaper requests. It returns the
// cheapest pair by [Options], with the cost of both, and whether that is to be taken; of equal ones the
// twin is, because nothing crosses. twins are the
// rows of both whole instances' batches together; 0 is MaxRows. A model that cannot be divided has twins
// only.
func Cheapest(m *Model, o Options, twins int) (pair Pair, whole Pair, take bool, err error) {
	if twins == 0 {
		twins = o.MaxRows
	}
	with := o
	with.MinRows, with.MaxRows, with.ShadowRows, with.Shadows, with.Reach = 0, twins, 0, 1, 0
	if whole, err = m.Pair(m.All(), 1, with); err != nil || len(m.Blocks) < 2 {
		return Pair{}, whole, false, err
	}
	o.Partial, o.Reach = true, 0
	if pair, _, err = Choose(m, o); err != nil {
		return Pair{}, whole, false, err
	}
	take = len(pair.Phi) > 0 && pair.Best.sent() > 0 && pair.Within && (!whole.Within || pair.Cost < whole.Cost)
	return pair, whole, take, nil
}
