package keeper

// HandOver decides whether the new revision of a function answers from now on, and the earlier one
// never again. serving is the capacity of the earlier instances that answer, ready that of the new
// ones that could, and wanted what the function needs, all in one unit.
//
// For example, 4 instances of the earlier revision serve, and 4 are wanted: the new revision takes
// over when 4 of it are ready. If there is no room for both, earlier instances stop one by one, and
// it takes over with 2 of each.
func HandOver(ready, serving, wanted float64) bool {
	return serving == 0 || ready > 0 && ready >= min(serving, wanted)
}
